# One domain of libvirt's LXC driver in the foreground, and the libvirtd that has it: `sh lxc.sh NAME XML
# CONTROLLERS…`, in namespaces of control groups, mounts and processes of its own, where /run is the guest's directory.
# It prints the output of the domain's console. CONTROLLERS are those of a hierarchy of control groups, as the kernel
# names them, or for version 2 the words that switch them on.
set -eu
domain=$1 xml=$2
shift 2
own=/run/libvirt-own
mkdir -p "$own/drivers" "$own/machine" /run/libvirt
# Other control groups than the guest's own are not there at all: libvirt also takes those that lie hidden below another mount.
while umount -l /sys 2>/dev/null; do :; done
mount -t sysfs netbench /sys
mount -t tmpfs netbench /sys/fs/cgroup
mount --rbind / "$own/machine"
. "${0%/*}/directories.sh"

# What the copy of a domain writes to directories of this machine stays in here: each line of that file is one of them.
if [ -e /run/overlaid ]; then
    mkdir "$own/copies"
    mount -t tmpfs -o mode=755 netbench "$own/copies"
    number=0
    while IFS= read -r directory; do
        copy=$own/copies/$number
        mkdir -p "$copy/written" "$copy/work" "$copy/merged"
        mount -t overlay -o "lowerdir=$own/machine$directory,upperdir=$copy/written,workdir=$copy/work" netbench "$copy/merged"
        number=$((number + 1))
    done </run/overlaid
fi

# It sees only the guest's own groups, of the controllers that it insists on.
for controllers; do
    if [ "$controllers" != "${controllers#+}" ]; then
        mount -t cgroup2 netbench /sys/fs/cgroup
        echo "$controllers" >/sys/fs/cgroup/cgroup.subtree_control
    else
        mkdir "/sys/fs/cgroup/$controllers"
        mount -t cgroup -o "$controllers" netbench "/sys/fs/cgroup/$controllers"
    fi
done

# No other driver is loaded: no network, firewall rule or storage of libvirt's is looked at.
ln -s /usr/lib/*/libvirt/connection-driver/libvirt_driver_lxc.so "$own/drivers/"
cat >/etc/libvirt/libvirtd.conf <<END
unix_sock_dir = "$own"
unix_sock_rw_perms = "0700"
auth_unix_rw = "none"
log_outputs = "4:stderr"
END
echo 'security_driver = "none"' >/etc/libvirt/lxc.conf
LIBVIRT_DRIVER_DIR=$own/drivers libvirtd --pid-file "$own/libvirtd.pid" 2>"$own/libvirtd.log" &
daemon=$!
until [ -S "$own/libvirt-sock" ]; do
    if ! kill -0 "$daemon"; then
        tail -n 1 "$own/libvirtd.log" >&2
        exit 1
    fi 2>/dev/null # the message of `kill` about a missing process
    sleep 0.02
done
ask() {
    virsh --quiet -c "lxc+unix:///system?socket=$own/libvirt-sock" "$@"
}

# Its first process bears the mark of the run, too.
printf '%s\n' "$xml" | sed "s/@RUN@/$NETBENCH_RUN/" >"$own/domain.xml"
ask create "$own/domain.xml" >/dev/null
console=$(ask ttyconsole "$domain")
{
    # Reading ends with an error when the domain does.
    cat "$console" 2>/dev/null | sed -u 's/\r$//'
    : >"$own/ended"
    kill "$daemon"
} &
wait "$daemon" || true # it was killed; the cause is printed below
if [ -e "$own/ended" ]; then
    echo "libvirt's domain has ended" >&2
else
    echo "its libvirtd has ended" >&2
fi
exit 1
