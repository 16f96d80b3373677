# One guest under VirtualBox, run by `unshare --mount --pid --fork --kill-child --mount-proc sh guest.sh
# DIRECTORY NAME DISC MAX_TIMER_HZ OPTION...`: all its files are in DIRECTORY, and when it ends the kernel ends all that it
# has started.
set -eu
directory=$1 name=$2 disc=$3 max_timer_hz=$4
shift 4
export HOME="$directory" VBOX_USER_HOME="$directory"
# VirtualBox's programs meet in /tmp: those of each guest among themselves.
mount -t tmpfs -o mode=1777 tmpfs /tmp
exec 3>&1 >/dev/null
VBoxManage createvm --name "$name" --ostype Linux_64 --register --basefolder "$directory"
VBoxManage modifyvm "$name" "$@"
VBoxManage setextradata "$name" VBoxInternal/TM/HostHzMax "$max_timer_hz"
VBoxManage storagectl "$name" --name disc --add ide
VBoxManage storageattach "$name" --storagectl disc --port 0 --device 0 --type dvddrive --medium "$disc"
exec VBoxHeadless --startvm "$name" --vrde off >&3
