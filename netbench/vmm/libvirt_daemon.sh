# A libvirtd of netbench's own, run by `unshare --mount --pid --fork --kill-child --mount-proc sh libvirt_daemon.sh DIR`:
# whatever it keeps is in DIR, and when it ends the kernel ends all that it has started.
set -eu
own=$1
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
# libvirtd looks for this user before it reads that it needs none.
for file in passwd group; do
    cp "/etc/$file" "$own/$file"
    grep -q '^libvirt-qemu:' "$own/$file" || echo 'libvirt-qemu:x:64055:64055::/:/bin/false' >>"$own/$file"
    mount --bind "$own/$file" "/etc/$file"
done
cat >/etc/libvirt/libvirtd.conf <<END
unix_sock_dir = "$own"
unix_sock_rw_perms = "0700"
auth_unix_rw = "none"
log_outputs = "4:stderr"
END
# Who may use the guest's files is netbench's to say; so are its control group and its namespaces.
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
stdio_handler = "file"
namespaces = []
cgroup_controllers = []
END
libvirtd --pid-file "$own/libvirtd.pid" &
wait $!
