"""Imports the operations of liger-kernel: for processes that workers are forked from."""

from _liger import imported

imported("ops")
