"""TPC-H for PostgreSQL: the tables and the queries that the workload tpc-h runs.

The tables have TPC-H's columns that its queries read, its row counts per scale factor and its
indexes (primary keys, and foreign keys of partsupp, orders and lineitem). Values come from a hash
of the row's number, so equal scales give equal rows. Comments have TPC-H's lengths, since they make
most of the bytes.

The queries are TPC-H's, with the validation parameters of its specification. They are in streams,
one per client, as in its throughput test.
"""

# Rows per unit of the scale factor (TPC-H 4.2.5). lineitem has one to seven rows per order.
SUPPLIERS, CUSTOMERS, PARTS, ORDERS = 10_000, 150_000, 200_000, 1_500_000
SEED = "create function h(n bigint, salt int, below bigint) returns bigint language sql immutable \
parallel safe as 'select abs(hashint8extended(n, salt) % below)';"


def tables(scale: float) -> str:
    """The statements that create and fill the tables."""
    suppliers, customers, parts, orders = (
        max(10, round(scale * rows)) for rows in (SUPPLIERS, CUSTOMERS, PARTS, ORDERS)
    )
    return f"""{SEED}
create table region as select r r_regionkey, 'REGION ' || r r_name from generate_series(0, 4) r;
create table nation as select n n_nationkey, 'NATION ' || n n_name, n % 5 n_regionkey
  from generate_series(0, 24) n;
create table supplier as select s s_suppkey, 'Supplier#' || lpad(s::text, 9, '0') s_name,
  h(s, 1, 25)::int s_nationkey, h(s, 2, 1099999) / 100.0 - 999.99 s_acctbal,
  repeat('s', 25 + h(s, 3, 76)::int) s_comment from generate_series(1, {suppliers}) s;
create table customer as select c c_custkey, 'Customer#' || lpad(c::text, 9, '0') c_name,
  repeat('a', 10 + h(c, 1, 31)::int) c_address, h(c, 2, 25)::int c_nationkey,
  (10 + h(c, 2, 25)) || '-' || lpad(h(c, 3, 10000000)::text, 12, '0') c_phone,
  (h(c, 4, 1099999) / 100.0 - 999.99)::numeric(12, 2) c_acctbal,
  (array['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'])[1 + h(c, 5, 5)]
  c_mktsegment, repeat('c', 29 + h(c, 6, 88)::int) c_comment
  from generate_series(1, {customers}) c;
create table part as select p p_partkey, repeat('p', 33) p_name, 'Manufacturer#' || 1 + h(p, 1, 5)
  p_mfgr, 'Brand#' || (1 + h(p, 1, 5)) || (1 + h(p, 2, 5)) p_brand,
  (array['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'])[1 + h(p, 3, 6)] || ' '
  || (array['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED'])[1 + h(p, 4, 5)] || ' '
  || (array['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'])[1 + h(p, 5, 5)] p_type,
  (1 + h(p, 6, 50))::int p_size,
  (array['SM', 'LG', 'MED', 'JUMBO', 'WRAP'])[1 + h(p, 7, 5)] || ' '
  || (array['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'])[1 + h(p, 8, 8)]
  p_container, (90000 + p / 10 % 20001 + 100 * (p % 1000)) / 100.0 p_retailprice,
  repeat('q', 5 + h(p, 9, 18)::int) p_comment from generate_series(1, {parts}) p;
create table partsupp as select p ps_partkey,
  (1 + (p + i * ({suppliers} / 4)) % {suppliers})::int ps_suppkey,
  (1 + h(4 * p + i, 1, 9999))::int ps_availqty,
  (1 + h(4 * p + i, 2, 99900) / 100.0)::numeric(12, 2) ps_supplycost,
  repeat('z', 49 + h(4 * p + i, 3, 150)::int) ps_comment
  from generate_series(1, {parts}) p, generate_series(0, 3) i;
create table orders as select o o_orderkey, (1 + h(o, 1, {customers}))::int o_custkey,
  (array['F', 'O', 'P'])[1 + h(o, 2, 3)] o_orderstatus,
  (1000 + h(o, 3, 45000000) / 100.0)::numeric(12, 2) o_totalprice,
  date '1992-01-01' + h(o, 4, 2406)::int o_orderdate,
  (1 + h(o, 5, 5)) || '-PRIORITY' o_orderpriority,
  'Clerk#' || lpad(h(o, 6, 1000)::text, 9, '0') o_clerk, 0 o_shippriority,
  repeat('o', 19 + h(o, 7, 60)::int) o_comment from generate_series(1, {orders}) o;
create table lineitem as select o_orderkey l_orderkey,
  (1 + h(8 * o_orderkey + i, 1, {parts}))::int l_partkey,
  (1 + h(8 * o_orderkey + i, 2, {suppliers}))::int l_suppkey, i l_linenumber,
  (1 + h(8 * o_orderkey + i, 3, 50))::numeric(12, 2) l_quantity,
  (900 + h(8 * o_orderkey + i, 4, 9500000) / 100.0)::numeric(12, 2) l_extendedprice,
  (h(8 * o_orderkey + i, 5, 11) / 100.0)::numeric(12, 2) l_discount,
  (h(8 * o_orderkey + i, 6, 9) / 100.0)::numeric(12, 2) l_tax,
  (array['R', 'A', 'N'])[1 + h(8 * o_orderkey + i, 7, 3)] l_returnflag,
  (array['O', 'F'])[1 + h(8 * o_orderkey + i, 8, 2)] l_linestatus,
  o_orderdate + (1 + h(8 * o_orderkey + i, 9, 121))::int l_shipdate,
  o_orderdate + (30 + h(8 * o_orderkey + i, 10, 61))::int l_commitdate,
  o_orderdate + (2 + h(8 * o_orderkey + i, 9, 121) + h(8 * o_orderkey + i, 11, 30))::int
  l_receiptdate,
  (array['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'])
  [1 + h(8 * o_orderkey + i, 12, 4)] l_shipinstruct,
  (array['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'])
  [1 + h(8 * o_orderkey + i, 13, 7)] l_shipmode,
  repeat('l', 10 + h(8 * o_orderkey + i, 14, 34)::int) l_comment
  from orders, lateral generate_series(1, 1 + h(o_orderkey, 8, 7)::int) i;
alter table supplier add primary key (s_suppkey);
alter table customer add primary key (c_custkey);
alter table part add primary key (p_partkey);
alter table partsupp add primary key (ps_partkey, ps_suppkey);
alter table orders add primary key (o_orderkey);
alter table lineitem add primary key (l_orderkey, l_linenumber);
create index on partsupp (ps_suppkey);
create index on orders (o_custkey);
create index on lineitem (l_partkey);
vacuum freeze analyze;
checkpoint;
"""


QUERIES = {
    1: """select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
sum(l_extendedprice * (1 - l_discount)), avg(l_discount), count(*) from lineitem
where l_shipdate <= date '1998-09-02' group by 1, 2 order by 1, 2""",
    2: """select s_acctbal, s_name, n_name, p_partkey, p_mfgr from part, supplier, partsupp, nation,
region where p_partkey = ps_partkey and s_suppkey = ps_suppkey and p_size = 15 and p_type like
'%BRASS' and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'REGION 3' and
ps_supplycost = (select min(ps_supplycost) from partsupp, supplier, nation, region where p_partkey =
ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
and r_name = 'REGION 3') order by s_acctbal desc, n_name, s_name, p_partkey limit 100""",
    3: """select l_orderkey, sum(l_extendedprice * (1 - l_discount)) revenue, o_orderdate,
o_shippriority from customer, orders, lineitem where c_mktsegment = 'BUILDING' and c_custkey =
o_custkey and l_orderkey = o_orderkey and o_orderdate < date '1995-03-15' and l_shipdate > date
'1995-03-15' group by l_orderkey, o_orderdate, o_shippriority order by 2 desc, 3 limit 10""",
    4: """select o_orderpriority, count(*) from orders where o_orderdate >= date '1993-07-01' and
o_orderdate < date '1993-10-01' and exists (select * from lineitem where l_orderkey = o_orderkey
and l_commitdate < l_receiptdate) group by 1 order by 1""",
    5: """select n_name, sum(l_extendedprice * (1 - l_discount)) from customer, orders, lineitem,
supplier, nation, region where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey =
s_suppkey and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
and r_name = 'REGION 2' and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
group by 1 order by 2 desc""",
    6: """select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date
'1994-01-01' and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and
l_quantity < 24""",
    10: """select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)), c_acctbal, n_name from
customer, orders, lineitem, nation where c_custkey = o_custkey and l_orderkey = o_orderkey and
o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01' and l_returnflag = 'R' and
c_nationkey = n_nationkey group by c_custkey, c_name, c_acctbal, n_name order by 3 desc limit 20""",
    12: """select l_shipmode, sum(case when o_orderpriority < '3' then 1 else 0 end) from orders,
lineitem where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate <
l_receiptdate and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01' and
l_receiptdate < date '1995-01-01' group by 1 order by 1""",
    14: """select sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0
end) / sum(l_extendedprice * (1 - l_discount)) from lineitem, part where l_partkey = p_partkey and
l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'""",
    17: """select sum(l_extendedprice) / 7.0 from lineitem, part where p_partkey = l_partkey and
p_brand = 'Brand#23' and p_container = 'MED BOX' and l_quantity < (select 0.2 * avg(l_quantity)
from lineitem where l_partkey = p_partkey)""",
    19: """select sum(l_extendedprice * (1 - l_discount)) from lineitem, part where p_partkey =
l_partkey and l_shipmode in ('AIR', 'REG AIR') and l_shipinstruct = 'DELIVER IN PERSON' and p_brand
= 'Brand#12' and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG') and l_quantity between 1
and 11 and p_size between 1 and 5""",
}
