"""What pyproject.toml cannot say: the built-in targets, a folder of the checkout, are fuzz/targets in the wheel."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["fuzz", "fuzz.*"]), "fuzz.targets"], package_dir={"fuzz.targets": "targets"})
