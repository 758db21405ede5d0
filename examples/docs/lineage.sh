python lineage.py
python lineage.py

# docs: begin look
weft lineage orders
weft lineage orders --down --depth 1
weft lineage totals.total --up
weft lineage totals@1.1
weft lineage orders --svg > orders.svg
# docs: end look

# docs: begin diff
weft datasets diff orders
weft datasets diff orders@1.1 orders@1.2 --rows --key id
# docs: end diff
