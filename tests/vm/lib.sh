# shellcheck shell=bash
# Boots and drives test guests. Source it from a bash script; every function returns within the time it is given.
#
#   vm_init DIR             DIR: a private directory for logs and pipes; call once. The caller's EXIT trap calls vm_cleanup
#   vm_choose_accel         sets VM_ACCEL to kvm or tcg and VM_ACCEL_WHY to the reason, in a few words
#   vm_nic_dgram VM HOST MAC       sets VM_NIC: a virtio NIC on QEMU's unix datagram backend (sockets VM and HOST)
#   vm_nic_stream HOST MAC         sets VM_NIC: a virtio NIC on QEMU's unix stream backend, dialling HOST
#   vm_boot NAME ACCEL PARAMETERS [QEMU ARGUMENT…]   starts a guest; PARAMETERS go on its kernel command line (see init)
#   vm_wait_ready NAME SECONDS     0 once the guest says that it is ready; else prints why not, returns 1
#   vm_run NAME SECONDS COMMAND    runs one line of sh in the guest, prints its output, returns its status;
#                                  124 if it did not end in time (the guest's shell is then still busy), 125 if the guest is gone
#   vm_pid NAME                    the guest's process
#   vm_log NAME                    the file with all that its serial port said
#   vm_stop NAME                   ends that guest
#   vm_spawn VARIABLE COMMAND…     starts a background process that dies with this shell and that vm_cleanup ends;
#                                  stores its pid. Redirections are inherited: vm_spawn P cmd >out 2>err
#   vm_end PID                     TERM, a bounded wait, then KILL; only for children of this shell
#   vm_wait_pid PID SECONDS        waits for a child, returns its status, or 124 when the time is over (it still runs then)
#   vm_wait_for SECONDS COMMAND…   calls it until it succeeds; 1 when the time is over
#   vm_cleanup                     ends every guest and spawned process
#
# VMLANE_ACCEL=kvm|tcg overrides the choice of accelerator, QEMU the emulator's name.

# VM_ACCEL, VM_ACCEL_WHY and VM_NIC are results, read by the scripts that source this file.
# shellcheck disable=SC2034

VM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
VM_KERNEL=$VM_ROOT/build/guest/vmlinuz
VM_INITRD=$VM_ROOT/build/guest/initrd
VM_KVM_PROBE_SECONDS=20
VM_KVM_SILENCE_SECONDS=6
VM_END_SECONDS=3

VM_DIR=
VM_ACCEL=
VM_ACCEL_WHY=
VM_NIC=()
VM_SPAWNED=()
declare -A VM_PIDS=() VM_INPUTS=()

vm_say() { printf 'vm: %s\n' "$*" >&2; }

vm_init() {
	VM_DIR=$1
	[ -d "$VM_DIR" ] || {
		vm_say "no directory $VM_DIR"
		return 1
	}
	if [ ! -s "$VM_KERNEL" ] || [ ! -s "$VM_INITRD" ]; then
		vm_say "no guest in ${VM_KERNEL%/*} (build it: tests/vm/guest)"
		return 1
	fi
}

vm_now_ms() { printf '%s\n' $((${EPOCHREALTIME/[.,]/} / 1000)); }

# A pid may be somebody else's by now; only what is still our child gets a signal.
vm_is_child() {
	local parent
	parent=$(sed -n 's/^PPid:\t//p' "/proc/$1/status" 2>/dev/null) || return 1
	[ "$parent" = $$ ]
}

vm_spawn() {
	local -n vm_spawn_result=$1
	shift
	# A kill -9 of this shell must not leave the process behind.
	# <&0, because bash otherwise gives a background command an empty input.
	setpriv --pdeathsig KILL -- "$@" <&0 &
	vm_spawn_result=$!
	VM_SPAWNED+=("$vm_spawn_result")
}

vm_wait_gone() { # PID SECONDS
	local deadline=$(($(vm_now_ms) + $2 * 1000))
	while vm_is_child "$1" && kill -0 "$1" 2>/dev/null; do
		[ "$(vm_now_ms)" -lt "$deadline" ] || return 1
		sleep 0.05
	done
}

vm_wait_pid() { # PID SECONDS
	vm_wait_gone "$1" "$2" || return 124
	wait "$1" 2>/dev/null
}

vm_wait_for() { # SECONDS COMMAND…
	local deadline=$(($(vm_now_ms) + $1 * 1000))
	shift
	until "$@"; do
		[ "$(vm_now_ms)" -lt "$deadline" ] || return 1
		sleep 0.05
	done
}

vm_end() {
	local pid=$1 signal
	for signal in TERM KILL; do
		vm_is_child "$pid" || break
		kill -"$signal" "$pid" 2>/dev/null
		vm_wait_gone "$pid" $VM_END_SECONDS && break
	done
	# Not if it outlived even KILL: that wait could take for ever.
	vm_is_child "$pid" || wait "$pid" 2>/dev/null
	return 0
}

vm_cleanup() {
	local name i
	for name in "${!VM_PIDS[@]}"; do
		vm_stop "$name"
	done
	# The last started first: who serves others goes last.
	for ((i = ${#VM_SPAWNED[@]} - 1; i >= 0; i--)); do
		vm_end "${VM_SPAWNED[i]}"
	done
	VM_SPAWNED=()
}

vm_nic_dgram() {
	VM_NIC=(-netdev "dgram,id=n0,local.type=unix,local.path=$1,remote.type=unix,remote.path=$2"
		-device "virtio-net-pci,netdev=n0,mac=$3")
}

vm_nic_stream() {
	VM_NIC=(-netdev "stream,id=n0,server=off,addr.type=unix,addr.path=$1"
		-device "virtio-net-pci,netdev=n0,mac=$2")
}

vm_pid() { printf '%s\n' "${VM_PIDS[$1]-}"; }
vm_log() { printf '%s\n' "$VM_DIR/$1.serial"; }

vm_boot() {
	local name=$1 accel=$2 parameters=$3 cpu=max pid
	shift 3
	[ "$accel" != kvm ] || cpu=host
	local serial=$VM_DIR/$name.serial input=$VM_DIR/$name.input errors=$VM_DIR/$name.qemu
	rm -f "$input"
	mkfifo "$input"
	: >"$serial"
	# Read and write, so that neither opening it waits for the other end nor QEMU sees an end of file. What the guest
	# says goes to a plain file: a slow reader here can never hold up the guest.
	local fd
	exec {fd}<>"$input"
	vm_spawn pid "${QEMU:-qemu-system-x86_64}" -M "q35,accel=$accel" -cpu $cpu -smp 1 -m 256M \
		-nodefaults -display none -monitor none -no-reboot -serial stdio \
		-kernel "$VM_KERNEL" -initrd "$VM_INITRD" -append "console=ttyS0 panic=-1 loglevel=4 $parameters" \
		"$@" <"$input" >"$serial" 2>"$errors"
	VM_PIDS[$name]=$pid
	VM_INPUTS[$name]=$fd
	echo 0 >"$VM_DIR/$name.sequence"
}

vm_alive() { [ -n "${VM_PIDS[$1]-}" ] && vm_is_child "${VM_PIDS[$1]}" && kill -0 "${VM_PIDS[$1]}" 2>/dev/null; }

# What to tell about a guest that failed: QEMU's own words, else the end of its console.
vm_last_words() {
	if [ -s "$VM_DIR/$1.qemu" ]; then
		tail -n 3 "$VM_DIR/$1.qemu"
	else
		tail -n 8 "$VM_DIR/$1.serial" | tr -d '\r\000'
	fi
}

vm_wait_ready() {
	local name=$1 seconds=$2 deadline serial=$VM_DIR/$1.serial
	deadline=$(($(vm_now_ms) + seconds * 1000))
	until grep -aq '^VMLANE-GUEST-READY' "$serial"; do
		if grep -aq '^VMLANE-GUEST-ERROR' "$serial"; then
			vm_say "guest $name: $(sed -n 's/^VMLANE-GUEST-ERROR //p' "$serial" | tr -d '\r')"
			return 1
		fi
		# KVM's way to fail is to pause the machine and say so.
		if grep -aqs 'KVM internal error' "$VM_DIR/$name.qemu"; then
			vm_say "guest $name stopped with a KVM internal error"
			return 1
		fi
		if ! vm_alive "$name"; then
			vm_say "guest $name ended before it was ready: $(vm_last_words "$name")"
			return 1
		fi
		if [ "$(vm_now_ms)" -ge "$deadline" ]; then
			vm_say "guest $name not ready after $seconds s: $(vm_last_words "$name")"
			return 1
		fi
		sleep 0.1
	done
}

# The outcome is judged by a guest that really booted: /dev/kvm may exist and yet run nothing (nested
# virtualisation that is off, or broken). Nothing of it is kept for the next time, since hosts change.
vm_choose_accel() {
	case ${VMLANE_ACCEL-} in
	kvm | tcg)
		VM_ACCEL=$VMLANE_ACCEL VM_ACCEL_WHY="VMLANE_ACCEL says so"
		return 0
		;;
	"") ;;
	*)
		vm_say "VMLANE_ACCEL=$VMLANE_ACCEL: must be kvm or tcg"
		return 1
		;;
	esac
	VM_ACCEL=tcg
	if [ ! -e /dev/kvm ]; then
		VM_ACCEL_WHY="no /dev/kvm here"
	elif [ ! -r /dev/kvm ] || [ ! -w /dev/kvm ]; then
		VM_ACCEL_WHY="/dev/kvm is not ours to open"
	else
		if vm_kvm_boots 2>"$VM_DIR/kvm-probe.why"; then
			VM_ACCEL=kvm VM_ACCEL_WHY="a guest booted under it"
		else
			VM_ACCEL_WHY="/dev/kvm exists but boots no guest"
		fi
		vm_stop kvm-probe
	fi
}

vm_kvm_boots() {
	local deadline=$(($(vm_now_ms) + VM_KVM_SILENCE_SECONDS * 1000))
	vm_boot kvm-probe kvm "earlyprintk=ttyS0 loglevel=7"
	# A kernel that runs says its name within a second. One that does not for several would be waited for in vain
	# (broken KVM can run the boot loader, in emulation, and then hang).
	until grep -aqs 'Linux version' "$VM_DIR/kvm-probe.serial"; do
		if [ "$(vm_now_ms)" -ge "$deadline" ]; then
			vm_say "no kernel under KVM in $VM_KVM_SILENCE_SECONDS s"
			return 1
		fi
		vm_alive kvm-probe || break
		sleep 0.1
	done
	vm_wait_ready kvm-probe $VM_KVM_PROBE_SECONDS
}

vm_run() {
	local name=$1 seconds=$2 command=$3 serial=$VM_DIR/$1.serial deadline start sequence status
	vm_alive "$name" || return 125
	case $command in
	*$'\n'*)
		vm_say "vm_run takes one line"
		return 2
		;;
	esac
	# Kept in a file: $(vm_run …) runs in a subshell, whose variables are lost.
	sequence=$(($(<"$VM_DIR/$name.sequence") + 1))
	echo "$sequence" >"$VM_DIR/$name.sequence"
	start=$(stat -c %s "$serial")
	printf '%s\n' "$command" >&"${VM_INPUTS[$name]}"
	deadline=$(($(vm_now_ms) + seconds * 1000))
	# Numbered, so that the late end of a command that was given up is not taken for this one's.
	until status=$(tail -c +$((start + 1)) "$serial" | sed -n "s/^VMLANE-DONE \\([0-9]*\\) $sequence\$/\\1/p") && [ -n "$status" ]; do
		vm_alive "$name" || return 125
		[ "$(vm_now_ms)" -lt "$deadline" ] || return 124
		sleep 0.05
	done
	tail -c +$((start + 1)) "$serial" | tr -d '\000' |
		awk -v end="$sequence" '
			/^VMLANE-DONE [0-9]+ [0-9]+$/ { if ($3 == end) exit; n = 0; next }
			{ line[n++] = $0 }
			END { if (n && line[n - 1] == "") n--; for (i = 0; i < n; i++) print line[i] }'
	return "$status"
}

vm_stop() {
	local name=$1 fd=${VM_INPUTS[$1]-}
	[ -n "${VM_PIDS[$name]-}" ] || return 0
	vm_end "${VM_PIDS[$name]}"
	exec {fd}>&-
	rm -f "$VM_DIR/$name.input"
	unset "VM_PIDS[$name]" "VM_INPUTS[$name]"
}
