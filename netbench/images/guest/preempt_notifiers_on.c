// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps the call of preempt notifiers in Linux's scheduler switched on from the moment this module is loaded.
 *
 * Linux switches it on and off by changing the code of its scheduler, by way of breakpoints (the static key
 * preempt_notifier_key in kernel/sched/core.c): on when the first guest of VirtualBox or KVM starts, off when the last
 * one ends. QEMU 7.2, where it emulates several CPUs, may go on with what it had translated for one of them while
 * another one changes that code; then all of them are in an endless loop of breakpoints. One user that never goes, and
 * that comes while only one CPU runs, leaves nothing to be changed later. Hence no exit: it cannot be unloaded.
 */
#include <linux/init.h>
#include <linux/module.h>
#include <linux/preempt.h>

static int __init preempt_notifiers_on(void)
{
	preempt_notifier_inc();
	return 0;
}
module_init(preempt_notifiers_on);

MODULE_DESCRIPTION("Keeps the call of preempt notifiers switched on");
MODULE_LICENSE("GPL");
