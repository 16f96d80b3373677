#!/bin/sh -e
# Builds kernel modules next to the unpacked headers of a kernel: build-modules.sh ROOT RELEASE [C FILE ...]
# Those in ROOT/usr/src/NAME-VERSION (sources for DKMS), and one for each C file; into the directory updates of its modules.
root=$1 release=$2
shift 2
headers=$root/usr/src/linux-headers-$release
updates=$root/usr/lib/modules/$release/updates
netbench=$root/usr/src/netbench
mkdir "$netbench" "$updates"
for file; do
    name=$(basename "$file" .c)
    mkdir "$netbench/$name"
    cp "$file" "$netbench/$name"
    echo "obj-m = $name.o" >"$netbench/$name/Makefile"
    echo "obj-m += $name/" >>"$netbench/Makefile"
done
sed -i "s|/usr/src/|$root/usr/src/|" "$headers/Makefile"
for place in "$root"/usr/src/*/dkms.conf "$netbench/Makefile"; do
    place=${place%/*}
    # Without the build directory, so that the same sources give the same module.
    make -C "$headers" M="$place" -j"$(nproc)" KCFLAGS="-ffile-prefix-map=$root/usr/src/=" LDFLAGS_MODULE=--build-id=none modules
    for built in "$place"/*/*.ko; do
        strip --strip-debug -o "$updates/${built##*/}" "$built"
    done
done
