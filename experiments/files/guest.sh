#!/bin/sh
# What guest.py has its guest do. The root is the disk of programs, /disk that of data; results go
# to the second serial port, a line of JSON each. The list of runs is /runs.

GROUP=/sys/fs/cgroup/case
DAMON=/sys/kernel/mm/damon/admin/kdamonds
HOT_PATTERN="1 4294967295 0 4294967295"
# Not read for 3 aggregation intervals of 50 ms: half the time that LRU keeps a page, at 200 MiB/s
# in 64 MiB.
COLD_PATTERN="0 0 3 4294967295"

prepare() {
    mount -t proc proc /proc
    mount -t sysfs sys /sys
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    for folder in /tmp /run /root /dev/shm; do
        mkdir -p $folder
        mount -t tmpfs tmp $folder
    done
    mkdir -p /disk
    mount -t ext4 -o ro /dev/vda /disk
    ip link set lo up
    echo +memory > /sys/fs/cgroup/cgroup.subtree_control
}

# KiB read from the disk of data and from the disk of programs since the boot.
disks() {
    awk '$3 == "vda" { data = $6 } $3 == "vdb" { programs = $6 }
         END { print data / 2, programs / 2 }' /proc/diskstats
}

# The number after a name in a file.
field() { awk -v name="$1" '$1 == name { print $2 }' "$2"; }

# Proactive reclaim as by Meta's senpai: four times a second 1 % of the group, unless its tasks have
# waited for memory for more than 1 ms since.
senpai() {
    before=0
    while usleep 250000; do
        waited_us=$(sed -n 's/^some.*total=//p' $GROUP/memory.pressure)
        bytes=$(($(cat $GROUP/memory.current) / 100))
        if [ $((waited_us - before)) -lt 1000 ] && echo $bytes > $GROUP/memory.reclaim; then
            echo $bytes >> /tmp/steered
        fi
        before=$waited_us
    done 2> /dev/null
}

# Writes a scheme of DAMON: NUMBER ACTION, then the least and the most accesses and age.
scheme() {
    at=$DAMON/0/contexts/0/schemes/$1
    echo "$2" > "$at/action"
    echo 4096 > "$at/access_pattern/sz/min"
    echo 18446744073709551615 > "$at/access_pattern/sz/max"
    echo "$3" > "$at/access_pattern/nr_accesses/min"
    echo "$4" > "$at/access_pattern/nr_accesses/max"
    echo "$5" > "$at/access_pattern/age/min"
    echo "$6" > "$at/access_pattern/age/max"
    echo none > "$at/watermarks/metric"
    # Leave all memory alone that is not the group's.
    echo 1 > "$at/filters/nr_filters"
    echo memcg > "$at/filters/0/type"
    echo /case > "$at/filters/0/memcg_path"
    echo N > "$at/filters/0/matching"
}

# Starts DAMON on all memory: `pageout` reclaims what is cold; `lru` moves what is hot to the LRU
# lists' head and what is cold to their tail.
damon() {
    # From Linux 6.17 on it runs from the boot, and only one may.
    stat=/sys/module/damon_stat/parameters/enabled
    if [ -e $stat ]; then echo N > $stat; fi
    echo 1 > $DAMON/nr_kdamonds
    echo 1 > $DAMON/0/contexts/nr_contexts
    at=$DAMON/0/contexts/0
    echo paddr > $at/operations
    echo 5000 > $at/monitoring_attrs/intervals/sample_us
    echo 50000 > $at/monitoring_attrs/intervals/aggr_us
    echo 1000000 > $at/monitoring_attrs/intervals/update_us
    echo 100 > $at/monitoring_attrs/nr_regions/min
    echo 1000 > $at/monitoring_attrs/nr_regions/max
    echo 1 > $at/targets/nr_targets
    grep 'System RAM' /proc/iomem | sed 's/ *\(.*\)-\(.*\) :.*/\1 \2/' > /tmp/ranges
    wc -l < /tmp/ranges > $at/targets/0/regions/nr_regions
    range=0
    while read -r start end; do
        echo $((0x$start)) > $at/targets/0/regions/$range/start
        echo $((0x$end + 1)) > $at/targets/0/regions/$range/end
        range=$((range + 1))
    done < /tmp/ranges
    if [ "$1" = pageout ]; then
        echo 1 > $at/schemes/nr_schemes
        scheme 0 pageout $COLD_PATTERN
    else
        echo 2 > $at/schemes/nr_schemes
        scheme 0 lru_prio $HOT_PATTERN
        scheme 1 lru_deprio $COLD_PATTERN
    fi
    echo on > $DAMON/0/state
    if [ "$(cat $DAMON/0/state)" != on ]; then
        echo "DAMON did not start" > /dev/console
        poweroff -f
    fi
}

stop_damon() {
    echo update_schemes_stats > $DAMON/0/state
    cat $DAMON/0/contexts/0/schemes/*/stats/sz_applied >> /tmp/steered
    echo off > $DAMON/0/state
    echo 0 > $DAMON/nr_kdamonds
}

# Starts hither on the group, from outside of it, and waits until its programs in the kernel are
# attached and it has had time to begin.
attach() {
    /hither run --json --page-cache --cgroup $GROUP > /dev/null 2> /tmp/agent &
    helper_pid=$!
    for wait in $(seq 120); do
        if ls -l /proc/$helper_pid/fd 2> /dev/null | grep -q bpf_link; then
            sleep 3
            return
        fi
        sleep 0.5
    done
    echo "hither did not attach:" > /dev/console
    cat /tmp/agent > /dev/console
    poweroff -f
}

# One run: ID LIMIT-FILE LIMIT LRU-GEN HELPER TIMEOUT COMMAND...
one() {
    id=$1 limit_file=$2 limit=$3 lru_gen=$4 helper=$5 timeout_s=$6
    shift 6
    mkdir $GROUP
    echo "$limit" > "$GROUP/$limit_file"
    echo "$lru_gen" > /sys/kernel/mm/lru_gen/enabled
    : > /tmp/steered
    : > /tmp/agent
    sync
    echo 3 > /proc/sys/vm/drop_caches
    case $helper in
        senpai) senpai & helper_pid=$! ;;
        pageout | lru) damon "$helper" ;;
        # Charges the pages of hither's binary to the root group.
        warm) cat /hither > /dev/null ;;
    esac
    disks_before=$(disks)
    # What hither reads of its own program counts.
    [ $helper != attached ] || attach
    began=$(cut -d ' ' -f 1 /proc/uptime)
    timeout "$timeout_s" sh -c "echo \$\$ > $GROUP/cgroup.procs; exec \"\$@\"" sh "$@" \
        > /tmp/out 2> /tmp/err
    status=$?
    ended=$(cut -d ' ' -f 1 /proc/uptime)
    disks_after=$(disks)
    case $helper in
        senpai) kill $helper_pid ;;
        # A shell's background programs ignore SIGINT until they say otherwise; hither does.
        attached) kill -INT $helper_pid && wait $helper_pid || status=$? ;;
        pageout | lru) stop_damon ;;
    esac
    said=$(cat /tmp/err /tmp/agent | grep '^{' | tail -n 1)
    [ $status = 0 ] || cat /tmp/err /tmp/agent > /dev/console
    echo "$id $status $began $ended $disks_before $disks_after \
        $(field workingset_refault_file $GROUP/memory.stat) $(cat $GROUP/memory.peak) \
        $(awk '{ sum += $1 } END { print sum + 0 }' /tmp/steered) $(head -c 16 /tmp/out)" |
        awk -v said="${said:-null}" '{
            printf "{\"id\":%s,\"status\":%s,\"guest_s\":%.2f,\"data_kib\":%d,", $1, $2, $4 - $3,
                $7 - $5
            printf "\"programs_kib\":%d,\"refaults\":%d,\"peak_bytes\":%d,", $8 - $6, $9, $10
            printf "\"steered_bytes\":%.0f,\"sum\":\"%s\",\"said\":%s}\n", $11, $12, said
        }' > /dev/ttyS1
    for wait in 1 2 3 4 5; do rmdir $GROUP 2> /dev/null && break; sleep 1; done
}

prepare
stty raw -echo < /dev/ttyS1
echo "{\"kernel\":\"$(uname -r)\"}" > /dev/ttyS1
. /runs
echo '{"end":true}' > /dev/ttyS1
poweroff -f
