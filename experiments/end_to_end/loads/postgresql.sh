#!/bin/sh
# PostgreSQL under load, by Debian's postgresql: postgresql.sh [TRANSACTIONS of each of 2 clients]
# Prints transactions a second. PostgreSQL does not run as root; as root, start what calls this with
#     setpriv --reuid=nobody --clear-groups --inh-caps=+perfmon --ambient-caps=+perfmon
set -e
transactions=${1:-100000}
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
initdb -D "$folder/data" -A trust -U me > /dev/null
postgres -D "$folder/data" -k "$folder" -c listen_addresses= -c shared_buffers=128MB \
    > "$folder/log" 2>&1 &
until pg_isready -q -h "$folder"; do sleep 0.05; done
pgbench -h "$folder" -U me -i -s 5 -q postgres 2> /dev/null
pgbench -h "$folder" -U me -c 2 -j 1 -t "$transactions" -S postgres | grep tps
pg_ctl -D "$folder/data" -m fast stop > /dev/null
wait
