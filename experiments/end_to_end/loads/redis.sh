#!/bin/sh
# redis under load, by Debian's redis-server and redis-tools: redis.sh [REQUESTS]
# Prints what redis-benchmark measures.
set -e
requests=${1:-300000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
redis-server --save '' --port 0 --unixsocket "$folder/socket" > /dev/null &
until redis-cli -s "$folder/socket" ping > /dev/null 2>&1; do sleep 0.05; done
redis-benchmark -s "$folder/socket" --csv -n "$requests" -r 200000 -d 512 -c 4 -t set,get
redis-cli -s "$folder/socket" shutdown nosave
wait
