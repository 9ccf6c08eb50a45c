"""What pyproject.toml cannot say: the built-in targets, a folder of the checkout, are fuzz/targets in the wheel."""

from setuptools import find_packages, setup

LIBRARIES = {f"fuzz.targets.{name}": f"targets/{name}" for name in ("conch", "fla", "liger")}
FOLDERS = {"fuzz.targets": "targets", **LIBRARIES}
setup(packages=[*find_packages(include=["fuzz", "fuzz.*"]), "fuzz.targets", *LIBRARIES], package_dir=FOLDERS)
