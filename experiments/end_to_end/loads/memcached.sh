#!/bin/sh
# memcached under load, by Debian's memcached and libmemcached-tools: memcached.sh [REQUESTS]
set -e
requests=${1:-60000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
memcached -u "$(id -un)" -t 4 -m 256 -s "$folder/socket" &
server=$!
until [ -S "$folder/socket" ]; do sleep 0.05; done
for test in set get; do
    memcslap --servers="$folder/socket" --concurrency=4 --execute-number="$requests" --test=$test
done
kill $server
wait $server || true
