# What guest.py --checks has its guest do: whether hither finds the memory limit of each shape of
# control groups, starts each of its mechanisms, and reads the bytes that the program reads without
# it. guest.sh, which reads this file, has the functions that are not here.

TOP=/sys/fs/cgroup

say() { echo "$*" > /dev/ttyS1; }

# NAME WANTED GOT
check() {
    if [ "$2" = "$3" ]; then say "ok      $1: $3"; else say "FAILED  $1: $3, not $2"; fi
}

# GROUP COMMAND...: runs it there.
within() {
    folder=$TOP/$1
    shift
    sh -c "echo \$\$ > $folder/cgroup.procs; exec \"\$@\"" sh "$@"
}

# The value of a key of the JSON that hither printed on stderr.
said() { grep '^{' /tmp/err | tail -n 1 | sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p"; }

# NAME WANTED-MIB GROUP [PREFIX...]: the budget is between three and seven eighths of the limit.
budget() {
    name=$1 limit_mib=$2 group=$3
    shift 3
    within "$group" "$@" /hither run --page-cache --dry-run --json -- true > /tmp/out 2> /tmp/err
    status=$?
    bytes=$(said budget_bytes)
    kib=$((${bytes:-0} / 1024))
    if [ $kib -gt $((limit_mib * 1024 * 5 / 8)) ] && [ $kib -le $((limit_mib * 1024 * 7 / 8)) ]
    then
        say "ok      $name: a budget of $kib KiB below $limit_mib MiB"
    else
        say "FAILED  $name: a budget of $kib KiB below $limit_mib MiB (status $status)"
        grep -v '^{' /tmp/err | head -n 3 > /dev/ttyS1
    fi
}

limits() {
    mkdir $TOP/a
    within a /hither run --page-cache -- true 2> /tmp/err
    check "no limit: --page-cache wants a size" 2 $?
    say "        $(head -n 1 /tmp/err)"
    within a /hither run -- true 2> /tmp/err
    check "no limit: automatic runs it" 0 $?
    say "        $(head -n 1 /tmp/err)"

    echo 64M > $TOP/a/memory.max
    budget "memory.max" 64 a
    within a /hither run -- true 2> /tmp/err
    say "        automatic: $(head -n 1 /tmp/err)"
    echo 32M > $TOP/a/memory.high
    budget "memory.high below memory.max" 32 a
    echo max > $TOP/a/memory.max
    budget "memory.high alone" 32 a

    echo max > $TOP/a/memory.high
    echo 64M > $TOP/a/memory.max
    mkdir $TOP/a/b
    budget "on the parent, its children without the controller" 64 a/b
    echo +memory > $TOP/a/cgroup.subtree_control
    budget "on the parent, none on the child" 64 a/b
    echo 32M > $TOP/a/b/memory.high
    budget "memory.high below the parent's memory.max" 32 a/b
    echo 128M > $TOP/a/b/memory.high
    budget "memory.high above the parent's memory.max" 64 a/b
    mkdir $TOP/a/b/c
    budget "on the grandparent" 64 a/b/c
    rmdir $TOP/a/b/c $TOP/a/b

    mkdir $TOP/t $TOP/t/threads
    echo 64M > $TOP/t/memory.max
    echo threaded > $TOP/t/threads/cgroup.type
    budget "a threaded child" 64 t/threads
    rmdir $TOP/t/threads $TOP/t $TOP/a
}

containers() {
    mkdir $TOP/pod
    echo 64M > $TOP/pod/memory.max
    # As Docker, Podman and Kubernetes do: the group is the root of what is mounted.
    for options in rw ro; do
        budget "a cgroup namespace with its own mount, $options" 64 pod /usr/bin/unshare -C -m \
            sh -c "umount $TOP; mount -t cgroup2 -o $options cgroup2 $TOP; exec \"\$@\"" sh
    done
    # No file in the namespace says what limits there are outside of it, or, without a mount of its
    # own, which of the mount's folders is its root.
    mkdir $TOP/pod/child
    within pod/child /usr/bin/unshare -C -m \
        sh -c "umount $TOP; mount -t cgroup2 cgroup2 $TOP; exec \"\$@\"" sh \
        /hither run --page-cache -- true 2> /tmp/err
    check "the limit outside of the namespace: --page-cache wants a size" 2 $?
    rmdir $TOP/pod/child
    within pod /usr/bin/unshare -C /hither run --page-cache -- true 2> /tmp/err
    check "a cgroup namespace without its own mount: --page-cache wants a size" 2 $?
    within pod /usr/bin/unshare -m sh -c 'umount /sys/fs/cgroup; exec "$@"' sh \
        /hither run --page-cache --cache 32MiB -- true 2> /tmp/err
    check "no mount of cgroups" 0 $?
    rmdir $TOP/pod

    # As systemd delegates: the user owns a group below one of root's that has the limit.
    mkdir $TOP/user $TOP/user/app
    echo 64M > $TOP/user/memory.max
    echo +memory > $TOP/user/cgroup.subtree_control
    chown 1000 $TOP/user/app $TOP/user/app/cgroup.procs $TOP/user/app/cgroup.subtree_control
    budget "delegated to a user, the limit on root's" 64 user/app $AS_USER
    echo +memory > $TOP/user/app/cgroup.subtree_control
    $AS_USER mkdir $TOP/user/app/own
    echo 32M | $AS_USER tee $TOP/user/app/own/memory.max > /dev/null
    budget "delegated to a user, the user's own below it" 32 user/app/own $AS_USER
    rmdir $TOP/user/app/own $TOP/user/app $TOP/user
}

AS_USER="/usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups"

# NAME COMMAND...: what the program prints is what it prints without hither.
same() {
    name=$1
    shift
    echo 3 > /proc/sys/vm/drop_caches
    within a "$@" > /tmp/out 2> /tmp/err
    check "$name" "$SUM" "$(cat /tmp/out)"
    grep -v '^{' /tmp/err | head -n 3 > /dev/ttyS1
}

mechanisms() {
    mkdir $TOP/a
    echo 64M > $TOP/a/memory.max
    program="/reader passes 3 65536 /disk/fits"
    SUM=$($program)
    same "--page-cache" /hither run --json --page-cache -- $program
    same "--replicas --replicate all" /hither run --json --replicas --replicate all -- $program
    say "        $(said replicas_made) $(said replicated_bytes) copied"
    same "--file-placement" /hither run --json --file-placement -- $program
    same "--memory=upm" /hither run --json --memory=upm -- $program
    same "record" /hither record -q -o /tmp/trace -- $program
    say "        $(/hither stat /tmp/trace 2>&1 | grep -m 1 -i references)"
    rm -r /tmp/trace
}

# A user may read root's files, but cachestat tells only those who may write them (Linux 6.14).
users() {
    program="/reader passes 6 65536 /disk/data"
    SUM=$($program)
    same "--page-cache --cache 32MiB" /hither run --json --page-cache --cache 32MiB -- $program
    said_of_drops
    same "--page-cache --cache 32MiB as a user, a file of root's" $AS_USER \
        /hither run --json --page-cache --cache 32MiB -- $program
    said_of_drops
}

said_of_drops() {
    say "        $(said drops) drops, $(said drops_refused) refused: $(said refused_why);" \
        "$(($(said storage_bytes) / 1048576)) MiB read, $(said preexisting_bytes) bytes of others"
    say "        not seen: $(said unseen_why)"
}

# The limit of a running program changes.
changing() {
    echo 3 > /proc/sys/vm/drop_caches
    within a /hither run --json --page-cache -- /reader passes 12 65536 /disk/data \
        > /tmp/out 2> /tmp/err &
    sleep 3
    echo 32M > $TOP/a/memory.max
    wait
    bytes=$(said budget_bytes)
    kib=$((${bytes:-0} / 1024))
    check "a limit that falls to 32 MiB" yes \
        "$([ $kib -lt $((32 * 1024)) ] && echo yes || echo "a budget of $kib KiB")"
    echo 64M > $TOP/a/memory.max
}

# What a program that does nothing takes with hither and without, and who is charged for it.
charged() {
    for command in "sleep 3" "/hither run --json --page-cache -- sleep 3"; do
        echo 3 > /proc/sys/vm/drop_caches
        within a $command > /tmp/out 2> /tmp/err &
        sleep 2
        say "        $command: $(cat $TOP/a/memory.current) bytes, of it" \
            "$(awk '$1 ~ /^(anon|file|kernel|shmem|file_mapped)$/ { printf "%s %d ", $1, $2 }' \
                $TOP/a/memory.stat)"
        wait
    done
}

# docs/run.md, "Without systemd, in a root shell", with a smaller file and limit.
recipe() {
    echo 'for i in 1 2 3 4 5 6; do cksum /disk/data; done > /dev/null' > /tmp/scan.sh
    echo +memory > /sys/fs/cgroup/cgroup.subtree_control
    mkdir /sys/fs/cgroup/scan
    echo 64M > /sys/fs/cgroup/scan/memory.max
    /usr/bin/dd if=/disk/data iflag=nocache count=0 2> /dev/null
    sh -c 'echo $$ > /sys/fs/cgroup/scan/cgroup.procs; exec /hither run -- sh /tmp/scan.sh' \
        2> /tmp/err
    check "docs/run.md in a root shell" 0 $?
    sed 's/^/        /' /tmp/err > /dev/ttyS1
    rmdir /sys/fs/cgroup/scan
}

export PATH=/usr/bin:/bin HITHER_LOG=
limits
containers
mechanisms
users
changing
charged
recipe
