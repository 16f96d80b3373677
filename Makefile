# `make demo` and `make test` are all a newcomer needs; `make help` lists the rest.
SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
# A root shell opened with plain `su` lacks the directories where ip, nft and ethtool live.
export PATH := $(PATH):/usr/sbin:/sbin
# Tests start hundreds of netbenches: each takes 0.7 s longer where Python may not keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

# COMMAND:PACKAGE of Debian. netbench/testbed/requirements.py and the plug-ins list the requirements of netbench.
NEEDED = $(PYTHON) -m netbench.testbed.requirements
TEST_TOOLS = capinfos:wireshark-common tshark:tshark zstd:zstd dpkg-deb:dpkg chromium:chromium ssh-keygen:openssh-client dropbearkey:dropbear-bin \
    sshd:openssh-server busybox:busybox-static iperf3:iperf3 sockperf:sockperf nginx:nginx-light passt:passt \
    grub-mkrescue:grub-pc-bin mformat:mtools xorriso:xorriso $(BPF_TOOLS)

# What tests of libvirt start and talk to: found by path, as none of it is a command that users need.
LIBVIRT_DRIVER = /usr/lib/$(shell uname -m)-linux-gnu/libvirt/connection-driver/libvirt_driver_$(1).so:libvirt-daemon-driver-$(1)
LIBVIRT := /usr/sbin/libvirtd:libvirt-daemon /usr/lib/python3/dist-packages/libvirt.py:python3-libvirt \
    $(call LIBVIRT_DRIVER,qemu)
LIBVIRT_LXC := /usr/sbin/libvirtd:libvirt-daemon virsh:libvirt-clients /usr/lib/python3/dist-packages/libvirt.py:python3-libvirt \
    $(call LIBVIRT_DRIVER,lxc)

# What the kernel modules of VirtualBox are built with, for the image of that name.
VIRTUALBOX := gcc-12:gcc-12 strip:binutils

DEMO_TOOLS := lxc-start:lxc ovs-vswitchd:openvswitch-switch stress-ng:stress-ng

# Tests that change nothing on the machine, so several run at once: one more than CPUs, because many wait. Those marked
# root change it, and run isolated.
AT_ONCE = -n $(shell expr $$(nproc) + 1) --dist worksteal
SIDE_BY_SIDE := tests/unit tests/contract tests/fuzz tests/report
# All others change the machine. Each file runs isolated from the machine and from the other files, four at a time, as each
# waits for most of its time. Tests of rates and times run alone on the machine itself, one after the other: they also need
# its kernel threads, which are invisible in isolation. The slowest files come first.
LONG := $(patsubst %,tests/netns/test_%.py,service_search ssh_hosts flow_paths campaign tools ports papers flows bpf_sink_packets) \
    $(patsubst %,tests/truth/test_%.py,reverse_tunnels learning) tests/wheel/test_installed.py
WITHOUT_CLOCK := $(patsubst %,tests/truth/test_%.py,faulty_router learning reverse_tunnels sinks_agree)
BY_THE_CLOCK := $(filter-out $(WITHOUT_CLOCK),$(wildcard tests/truth/test_*.py)) $(patsubst %,tests/netns/test_%.py,afpacket \
    bpf_sink compare datapaths faults neighbours receive_by_napi saturated side_by_side trex trex_server xdp)
# VMMs that need no VM.
CONTAINERS := $(patsubst %,tests/netns/test_%.py,container openvz example_vmm)
IN_NAMESPACES := $(LONG) $(filter-out $(LONG) $(BY_THE_CLOCK) $(CONTAINERS),$(wildcard tests/netns/test_*.py tests/wheel/test_*.py)) \
    tests/contract/test_hosts.py $(filter-out $(LONG),$(WITHOUT_CLOCK))
# Containers, guests and virtual machines, two files at a time: where the CPU is emulated, each takes about one CPU. The
# slowest come first.
LONG := $(patsubst %,tests/vm/test_%.py,virtualbox xen cabled kvm libvirt guests)
# These share out CPUs, or send as fast as they can: they need both CPUs.
GUESTS_BY_THE_CLOCK := $(patsubst %,tests/vm/test_%.py,lab_vm neighbours pktgen_in_vm side_by_side)
PREPARED := image-virtualbox image-xen image-lab image-tester image-test-disk vcsim
GUESTS := $(LONG) $(CONTAINERS) $(filter-out $(LONG) $(GUESTS_BY_THE_CLOCK),$(wildcard tests/vm/test_*.py))
# Apart, there is no network: what tests fetch from it is there before them, but for those that do so as they go.
ONLINE := tests/wheel/test_installed.py tests/vm/test_image_build.py
FILES = $(MAKE) --no-print-directory --keep-going --output-sync
# How long `make fuzz` takes for each target.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS := capture topology profile
# Where `make bpf` puts the objects; a test builds them elsewhere, and compares.
BPF_OBJECTS ?= netbench/bpf/programs
BPF_TOOLS := clang:clang llvm-strip:llvm /usr/include/bpf/bpf_helpers.h:libbpf-dev

.PHONY: help setup demo guest test test-platforms unit lint docs dist format bpf schemas selftest bench fuzz clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.installed ## install what netbench needs: system packages and .venv
	@tools/system-packages $$($(NEEDED) run)

$(VENV)/.installed: setup.cfg pyproject.toml
	@tools/system-packages python-venv:python3-venv
	@test -x $(PYTHON) || python3 -m venv $(VENV)
	@echo "installing netbench and its Python packages into $(VENV)"
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: ## measure real traffic in network namespaces and write a report (root)
	@tools/require-root 'make demo'
	@$(MAKE) --no-print-directory setup
	@tools/system-packages $(DEMO_TOOLS)
	@rm -rf results/demo
	@$(VENV)/bin/netbench run netns-demo demo -o results/demo

guest: setup ## install QEMU and build the guest image: what guests, VMs and neighbours need
	@tools/system-packages $$($(NEEDED) guest)
	@$(VENV)/bin/netbench image build

test: guest ## all tests but those of containers, guests and VMs (root, or the parts that need it are skipped)
	@tools/system-packages $(TEST_TOOLS) $(LIBVIRT_LXC)
	@$(PYTHON) -m pytest $(AT_ONCE) -m 'not root' $(SIDE_BY_SIDE); side_by_side=$$?; \
	    $(FILES) --jobs=4 $(IN_NAMESPACES); paired=$$?; \
	    $(PYTHON) -m pytest --no-header $(BY_THE_CLOCK); exit $$((side_by_side | paired | $$?))

test-platforms: guest ## the tests of containers, guests and virtual machines (root)
	@tools/system-packages $(TEST_TOOLS) $(LIBVIRT) $(LIBVIRT_LXC) $(VIRTUALBOX)
	@# Tries once whether guests boot under KVM, for all files: tools/apart hands the answer on.
	@$(VENV)/bin/netbench doctor >/dev/null || true
	@# Before all tests: a file that waited for its image would be started after all others.
	@$(FILES) --jobs=2 $(PREPARED)
	@$(FILES) --jobs=2 $(GUESTS); paired=$$?; \
	    $(PYTHON) -m pytest --no-header $(GUESTS_BY_THE_CLOCK); exit $$((paired | $$?))

.PHONY: $(IN_NAMESPACES) $(BY_THE_CLOCK) $(GUESTS) $(GUESTS_BY_THE_CLOCK) vcsim
$(IN_NAMESPACES) $(GUESTS): export TIMEFORMAT = $@: %R s, CPU %U + %S s
$(IN_NAMESPACES) $(GUESTS):
	@time tools/apart $(if $(filter $@,$(ONLINE)),--online) $(PYTHON) -m pytest --no-header $@

$(BY_THE_CLOCK) $(GUESTS_BY_THE_CLOCK):
	@$(PYTHON) -m pytest --no-header $@

# Tests that run apart cannot fetch what these are made of. Where one cannot be made, tests say what they lack.
image-%:
	-@$(VENV)/bin/netbench image build --name $* >/dev/null

image-test-disk:
	-@$(PYTHON) -m tests.vm.disk_image >/dev/null

vcsim:
	-@$(PYTHON) -m tests.vcsim >/dev/null

unit: $(VENV)/.installed ## the tests of tests/unit, which need no root
	@$(PYTHON) -m pytest $(AT_ONCE) tests/unit

lint: $(VENV)/.installed ## ruff, mypy, allowed imports, and whether the generated files are up to date
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo --no-cache
	@$(VENV)/bin/codespell
	@for what in topology profile; do \
	    $(VENV)/bin/netbench schema $$what | cmp - schemas/$$what.json || { echo 'run `make schemas`'; exit 1; }; \
	done
	@$(PYTHON) tools/reference.py --check

# With links and anchors checked; opens from disk, search included.
docs: $(VENV)/.installed ## the documentation as a site: build/docs/index.html
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict

# Built from a clone, so that no file of this tree slips in; both are checked by installing them.
dist: $(VENV)/.installed ## wheel and sdist in dist/, each installed once and run
	@tools/build-dist dist

format: $(VENV)/.installed ## let ruff lay out the code
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

# With clang 14, Debian 12's: another one builds programs that do the same, of other bytes.
bpf: ## build the BPF programs, after a change to one
	@tools/system-packages $(BPF_TOOLS)
	@objects=$$(realpath "$(BPF_OBJECTS)") && cd -P netbench/bpf/programs && for source in *.c; do \
	    object=$$objects/$${source%.c}.bpf.o; \
	    clang -O2 -g -Wall -Werror -target bpf -mcpu=v3 "-fdebug-prefix-map=$(CURDIR)=." \
	        -I/usr/include/$$(uname -m)-linux-gnu -c $$source -o "$$object" \
	        && llvm-strip -g "$$object" || exit 1; \
	done

schemas: $(VENV)/.installed ## write the JSON Schemas and docs/reference.md, after a change to a model of options
	@for what in topology profile; do $(VENV)/bin/netbench schema $$what -o schemas/$$what.json || exit 1; done
	@$(PYTHON) tools/reference.py

selftest: setup ## is the tester right, on this machine? (root)
	@tools/require-root 'make selftest'
	@$(VENV)/bin/netbench selftest

bench: setup ## the benchmarks: generators, capture analysis, overhead of campaigns and reports (root)
	@tools/require-root 'make bench'
	@tools/system-packages trafgen:netsniff-ng capinfos:wireshark-common
	@$(PYTHON) benchmarks/generator.py
	@$(PYTHON) benchmarks/sink.py
	@$(PYTHON) benchmarks/capture.py
	@$(PYTHON) benchmarks/pktgen.py
	@$(PYTHON) benchmarks/overhead.py
	@$(PYTHON) -m benchmarks.results
	@$(PYTHON) benchmarks/search.py --check

# In rounds of a minute at most: atheris loses some memory with every comparison of arrays.
fuzz: $(VENV)/.installed ## look for input that breaks the readers, FUZZ_SECONDS for each; what is found is in .fuzz
	@for target in $(FUZZ_TARGETS); do \
	    echo "fuzzing: $$target, $(FUZZ_SECONDS) s"; \
	    for ((left = $(FUZZ_SECONDS); left > 0; left -= 60)); do \
	        $(PYTHON) -m tests.fuzz $$target .fuzz/$$target -max_total_time=$$((left < 60 ? left : 60)) -verbosity=0 || exit 1; \
	    done; \
	done

clean: ## undo what a killed run left behind (root)
	@$(VENV)/bin/netbench clean
