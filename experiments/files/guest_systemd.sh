# What guest.py --systemd has a Debian with systemd do, as a service: the commands of docs/run.md,
# "Try it under a memory limit", as root and as a user with a manager of its own, and hither in a
# service with the usual restrictions.

exec > /dev/ttyS1 2>&1
stty raw -echo < /dev/ttyS1
echo "Linux $(uname -r), $(systemctl --version | head -n 1)"
loginctl enable-linger user
while ! [ -S /run/user/1000/bus ]; do sleep 1; done

as_user() {
    setpriv --reuid 1000 --regid 1000 --init-groups \
        env HOME=/home/user XDG_RUNTIME_DIR=/run/user/1000 \
        DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus "$@"
}

# NAME COMMAND...
check() {
    name=$1
    shift
    echo "== $name"
    # A scope keeps pages that another one was charged with.
    sync
    echo 3 > /proc/sys/vm/drop_caches
    "$@" > /tmp/said 2>&1
    status=$?
    sed 's/^/        /' /tmp/said
    # What a filter of system calls has refused.
    dmesg | grep -o 'comm=.* syscall=[0-9]*' | tail -n 3
    dmesg -C
    if [ $status = 0 ]; then echo "ok      $name"; else echo "FAILED  $name: status $status"; fi
}

cd /srv || exit
echo 'for i in 1 2 3 4 5 6; do cksum scan.data; done > /dev/null' > scan.sh
scope="systemd-run --quiet --user --scope -p MemoryMax=128M"
check "without a limit" as_user hither run -- sh scan.sh
check "a user's scope, its group" as_user $scope cat /proc/self/cgroup
check "a user's scope, not steered" as_user $scope hither run --page-cache --dry-run -- sh scan.sh
check "a user's scope" as_user $scope hither run -- sh scan.sh
check "a plan" as_user hither -q advise --size 90MiB --save plan.toml -- sh scan.sh
check "a user's scope with the plan" as_user $scope hither run --plan plan.toml -- sh scan.sh
check "a user's scope, MemoryHigh" as_user systemd-run --quiet --user --scope -p MemoryHigh=128M \
    hither run -- sh scan.sh
check "root's scope" systemd-run --quiet --scope -p MemoryMax=128M hither run -- sh scan.sh
check "a service" systemd-run --quiet --wait --pipe -p MemoryMax=128M \
    -p WorkingDirectory=/srv hither run -- sh scan.sh
check "a restricted service" systemd-run --quiet --wait --pipe -p MemoryMax=128M \
    -p WorkingDirectory=/srv -p User=user -p ProtectSystem=strict -p ProtectHome=read-only \
    -p PrivateTmp=yes -p PrivateDevices=yes -p NoNewPrivileges=yes -p ProtectProc=invisible \
    -p ProtectControlGroups=yes -p ProtectKernelTunables=yes -p RestrictNamespaces=yes \
    -p MemoryDenyWriteExecute=yes -p SystemCallFilter=@system-service hither run -- sh scan.sh
check "a service of a dynamic user" systemd-run --quiet --wait --pipe -p MemoryMax=128M \
    -p WorkingDirectory=/srv -p DynamicUser=yes hither run -- sh scan.sh
echo '{"end":true}'
poweroff -f
