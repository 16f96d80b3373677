# For a libvirtd in its own mount namespace: all its files are in $own.
for place in /etc /var/lib /var/log /var/cache /run; do
    if [ ! -d "$place/libvirt" ]; then
        # Nothing is made on this machine: here the directory becomes one of the same entries, and one more.
        mount --rbind "$place" /mnt
        mount -t tmpfs -o mode=755 tmpfs "$place"
        for entry in /mnt/* /mnt/.[!.]*; do
            name=$place/${entry##*/}
            if [ -L "$entry" ]; then
                cp -P "$entry" "$name"
            elif [ -d "$entry" ]; then
                mkdir -p "$name"
                mount --rbind "$entry" "$name"
            elif [ -e "$entry" ]; then
                : >"$name"
                mount --bind "$entry" "$name"
            fi
        done
        umount -l /mnt
        mkdir "$place/libvirt"
    fi
    mkdir -p "$own$place"
    mount --bind "$own$place" "$place/libvirt"
done
