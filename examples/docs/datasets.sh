python datasets.py

# docs: begin look
weft datasets list
weft datasets show orders
weft datasets partitions orders --latest
weft datasets writes orders
weft datasets versions orders
weft datasets state orders
weft datasets sample orders --limit 3
weft datasets describe orders "what was ordered, by day"
# docs: end look

# docs: begin back
weft datasets rollback orders@1.1
weft datasets rollback orders@1.1 --yes --reason "the import of the 15th was wrong"
# docs: end back

# docs: begin gc
weft datasets gc --dry-run
weft datasets gc --grace 7d
# docs: end gc

# docs: begin grant
weft roles create finance
weft datasets grant orders finance
# docs: end grant
