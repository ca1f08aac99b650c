"""What a Raspberry Pi 5 says of its power."""

from pathlib import Path

from support.commands import executable

# Of a Raspberry Pi 5 that does little, in both forms that its firmware has; the supply and the battery have no current.
RAILS = """\
   3V3_SYS_A current(1)=0.10000000A
   VDD_CORE_A current(7)=1.50000000A
   3V3_SYS_V volt(9)=3.30000000V
   VDD_CORE_V volt(15)=0.80000000V
   EXT5V_V volt(24)=5.14000000V
   BATT_V volt(25)=0.00683760V
"""
EARLIER = "3V3_SYS_A=0.1A\nVDD_CORE_A=1.5A\n3V3_SYS_V=3.3V\nVDD_CORE_V=0.8V\nEXT5V_V=5.14V\n"


def vcgencmd(folder: Path, said: str = RAILS) -> None:
    """Put the firmware's program into a folder, which says this of the power chip, and nothing of all else."""
    executable(folder / "vcgencmd", f'[ "$*" = pmic_read_adc ] && cat <<"END"\n{said}END')
