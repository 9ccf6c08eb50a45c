"""What pyproject.toml cannot say: the built-in targets, a folder of the checkout, are fuzz/targets in the wheel."""

from setuptools import find_packages, setup

LIBRARIES = ["fuzz.targets.fla", "fuzz.targets.liger"]
FOLDERS = {"fuzz.targets": "targets", "fuzz.targets.fla": "targets/fla", "fuzz.targets.liger": "targets/liger"}
setup(packages=[*find_packages(include=["fuzz", "fuzz.*"]), "fuzz.targets", *LIBRARIES], package_dir=FOLDERS)
