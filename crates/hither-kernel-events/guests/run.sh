#!/usr/bin/env bash
# Runs this crate's tests in a guest with another kernel, under QEMU without KVM.
# run.sh FOLDER: where the packages of the kernel (image, modules) are unpacked.
# README.md says how to get some. Prints the guest's console; fails if a test does.
# MACHINE=aarch64: the kernel is one for arm64, for which the tests are compiled here.
set -euo pipefail
kernel="$(realpath "$1")"
here="$(realpath "$(dirname "$0")")"
work="$(mktemp -d)"
trap 'rm -r "$work"' EXIT
root="$work/root"
mkdir -p "$root"/{bin,proc,sys,dev,tmp,var/tmp,tests,lib64}

case "${MACHINE:-x86_64}" in
  x86_64)
    prefix="" compiler=gcc target=()
    qemu=(qemu-system-x86_64 -cpu max -append "console=ttyS0 quiet panic=-1")
    ;;
  aarch64)
    # shellcheck source=packaging/cross.sh
    . "$here/../../../packaging/cross.sh"
    prefix="$cross_prefix" compiler="$cross_compiler" target=(--target "$cross_target")
    # Signatures of pointers by QEMU's own rule, as Arm's takes most of the time.
    qemu=(qemu-system-aarch64 -machine virt -cpu max,pauth-impdef=on
      -append "console=ttyAMA0 quiet panic=-1")
    ;;
  *)
    echo "MACHINE is x86_64 or aarch64" >&2
    exit 2
    ;;
esac

# The paths of the libraries that a program needs.
libraries() {
  if [ -z "$prefix" ]; then
    ldd "$1" | grep -o '/[^ ]*'
  else
    "${prefix}readelf" -dl "$1" |
      sed -n -e 's/.*library: \[\(.*\)\]/\1/p' -e 's|.*interpreter: /lib/\(.*\)\]|\1|p'
  fi
}

# The tests, and the libraries that they need.
cd "$here/.."
# shellcheck disable=SC2086
cargo test -q ${PACKAGES:--p hither-kernel-events --test observer --test sources} "${target[@]}" \
  --no-run --message-format=json |
  grep -o '"executable":"[^"]*"' | cut -d'"' -f4 > "$work/tests"
while read -r test; do
  name="$(basename "$test")"
  "${prefix}strip" -o "$root/tests/${name%-*}" "$test"
  libraries "$test" | while read -r library; do
    # Of another machine, the compiler has them, and they lie where its linker looks.
    case "$library" in
      /*) from="$library" ;;
      *) from="$("$compiler" -print-file-name="$library")" library="/lib/$library" ;;
    esac
    mkdir -p "$root$(dirname "$library")"
    cp -L "$from" "$root$library"
  done
done < "$work/tests"
"$compiler" -O1 -fno-omit-frame-pointer -static -o "$root/accesses" tests/support/accesses.c
cp "${BUSYBOX:-/bin/busybox}" "$root/bin/busybox"

# Modules for a disk with ext4. What is not there is part of the kernel.
modules="$(find "$kernel" -type d -path '*/lib/modules/*/kernel' -prune)"
version="$(basename "$(dirname "$modules")")"
image="$(find "$kernel" -name "vmlinuz-$version" -o -path "*/$version/vmlinuz")"
to="$root/lib/modules/$version"
mkdir -p "$to"
find "$modules" -path '*/drivers/virtio/*.ko*' -o -name 'virtio_blk.ko*' -o -name 'crc*.ko*' \
  -o -name 'ext4.ko*' -o -name 'jbd2.ko*' -o -name 'mbcache.ko*' -o -name 'overlay.ko*' \
  -o -name 'libcrc32c.ko*' |
  while read -r module; do
    case "$module" in
      *.xz) xz -dc "$module" > "$to/$(basename "${module%.xz}")" ;;
      *.zst) zstd -qdc "$module" > "$to/$(basename "${module%.zst}")" ;;
      *) cp "$module" "$to" ;;
    esac
  done

cat > "$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HITHER_TEST_ACCESSES=/accesses
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mount -t cgroup2 none /sys/fs/cgroup
depmod
for module in virtio_pci virtio_blk crc32c_generic ext4 overlay; do
  modprobe "$module" 2> /dev/null
done
mount -t ext4 /dev/vda /var/tmp || poweroff -f
ifconfig lo up
echo "guest: $(uname -r)"
failed=0
for test in /tests/*; do
  echo "guest: $test"
  "$test" --test-threads=1 --nocapture 2>&1 || failed=1
done
echo "guest: failed=$failed"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initramfs"
truncate -s 256M "$work/disk"
mke2fs -q -t ext4 "$work/disk"

timeout "${TIMEOUT_S:-1800}" "${qemu[@]}" -accel tcg,thread=multi -smp 2 -m 1536 \
  -nographic -no-reboot -kernel "$image" -initrd "$work/initramfs" \
  -drive "file=$work/disk,format=raw,if=virtio" < /dev/null | tee "$work/console"
grep -q 'guest: failed=0' "$work/console"
