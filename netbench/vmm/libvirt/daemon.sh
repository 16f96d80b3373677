# A libvirtd of netbench's own, run by `unshare --mount --pid --fork --kill-child --mount-proc sh daemon.sh DIR`:
# whatever it keeps is in DIR, and when it ends the kernel ends all that it has started.
set -eu
own=$1
. "${0%/*}/directories.sh"
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
