"""What this host can run, what it lacks, and the exact command that adds it."""

from netbench.doctor.checks import Check, Status, exit_code
from netbench.doctor.diagnosis import diagnose, known_needs
from netbench.doctor.packages import install_command
from netbench.doctor.present import doctor_json, doctor_text, run_doctor
from netbench.doctor.tools import Which
from netbench.links.probes import PROBE_PREFIX

__all__ = [
    "PROBE_PREFIX",
    "Check",
    "Status",
    "Which",
    "diagnose",
    "doctor_json",
    "doctor_text",
    "exit_code",
    "install_command",
    "known_needs",
    "run_doctor",
]
