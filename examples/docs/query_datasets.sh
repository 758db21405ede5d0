python datasets.py

# docs: begin ask
weft query "select day, sum(price) as total from orders group by day order by day"
weft query 'select count(*) as before from "orders@1.1"' --format csv
weft query "select * from orders" -o orders.parquet
# docs: end ask
head -c 4 orders.parquet
