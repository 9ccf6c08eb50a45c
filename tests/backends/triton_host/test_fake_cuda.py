"""What launchers ask of torch.cuda."""

import torch

from fuzz.backends import cpu


def test_devices_and_streams_have_numbers():
    with cpu.active():
        with torch.cuda.device(torch.device("cuda", 0)) as nothing, torch.cuda.device_of(torch.ones(1)):
            assert nothing is None
        assert torch.cuda.device(0).idx == 0
        assert torch._C._cuda_getCurrentRawStream(0) == 0
        assert torch.cuda._exchange_device(0) == 0
    assert torch.cuda.device(0).idx == 0


def test_pinned_memory_is_memory():
    with cpu.active():
        x = torch.ones(1)
        assert x.pin_memory() is x


def test_dynamo_can_make_its_table_of_functions_anew():
    from torch._dynamo.trace_rules import get_torch_obj_rule_map

    get_torch_obj_rule_map.cache_clear()
    try:
        with cpu.active():
            assert get_torch_obj_rule_map()
    finally:
        get_torch_obj_rule_map.cache_clear()
