"""The parts of the pretence that CPU tensors are on a GPU: devices of tensors, and operators."""
