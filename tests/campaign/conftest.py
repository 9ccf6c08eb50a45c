"""What tests of campaigns need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forked_hosts import ForkedHost

from fuzz.campaign.hosts import hosts


@pytest.fixture
def forked_hosts() -> Iterator[None]:
    """Hosts that this process starts are forked: what they do is tested, and not how a Python is started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts, "PipeProcess", ForkedHost)
        yield
