"""Processes that look at images: what they may take, and what is believed of them."""

import asyncio
import os
import sys

import pytest

from parley.core.images import ImageFacts
from parley.errors import BUSY, SHUTTING_DOWN, Refused
from parley.files import decoder, images
from parley.files.decoder import ImageDecoder
from tests.integration.gateway.uploading import image_bytes
from tests.waiting import eventually

PNG = image_bytes("PNG")
HEADER = "import sys\nsys.stdin.buffer.read()\nprint('PNG 300 200 ', flush=True)\n"


def running(code: str) -> ImageDecoder:
    """A decoder whose process runs this."""
    return ImageDecoder((sys.executable, "-c", code))


async def test_an_image_is_looked_at_in_a_process() -> None:
    """Which has nothing of the environment but where to import from."""
    facts = await ImageDecoder().look(PNG, is_whole=True)
    assert facts is not None
    assert facts[:3] == ("PNG", 300, 200)
    assert facts.preview
    assert await ImageDecoder().look(PNG, is_whole=False) == ImageFacts("PNG", 300, 200)
    assert await ImageDecoder().look(b"no image", is_whole=True) is None


async def test_a_process_gets_no_secret_and_little_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limits are those of the system, which ends it whatever it does."""
    monkeypatch.setenv("PARLEY_SECRET", "secret")
    code = (
        "import os, resource as r, sys\nfrom parley.files.images import limit_process\nlimit_process()\n"
        "names = (r.RLIMIT_CPU, r.RLIMIT_AS, r.RLIMIT_FSIZE, r.RLIMIT_CORE)\n"
        "found = [r.getrlimit(name)[1] for name in names]\n"
        "is_bare = 'PARLEY_SECRET' not in os.environ\n"
        f"is_right = found == {[images.CPU_SECONDS_MAX, images.MEMORY_BYTES_MAX, 0, 0]}\n"
        "print('PNG 1 1 ' if is_bare and is_right else found)\n"
    )
    assert os.environ["PARLEY_SECRET"]
    assert await running(code).look(PNG, is_whole=True) == ImageFacts("PNG", 1, 1)


@pytest.mark.parametrize(
    "end",
    [
        "from parley.files.images import limit_process\nlimit_process()\nbytearray(10**9)\n",
        "import os\nos.abort()\n",
        "sys.exit(1)\n",
        "while True: print('x' * 10_000)\n",
    ],
    ids=["takes too much memory", "crashes", "fails", "says too much"],
)
async def test_what_a_process_told_before_its_end_counts(end: str) -> None:
    """What the header says: so the image keeps its type and its size."""
    assert await running(HEADER + end).look(PNG, is_whole=True) == ImageFacts("PNG", 300, 200)


async def test_a_process_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it told counts here, too."""
    monkeypatch.setattr(decoder, "DECODE_SECONDS_MAX", 0.0)
    processes = running("import time\nwhile True: time.sleep(1)")
    assert await processes.look(PNG, is_whole=True) is None
    assert not processes.processes


async def test_without_a_process_an_upload_is_tried_again() -> None:
    """As without memory for one; a closed decoder starts none."""
    with pytest.raises(Refused) as busy:
        await ImageDecoder(("/nowhere/python",)).look(PNG, is_whole=True)
    assert busy.value.refusal.code == BUSY.code
    closed = ImageDecoder()
    closed.close()
    with pytest.raises(Refused) as closing:
        await closed.look(PNG, is_whole=True)
    assert closing.value.refusal.code == SHUTTING_DOWN.code


async def test_a_caller_who_is_gone_leaves_no_process() -> None:
    """As when the connection of an upload breaks."""
    processes = running("import time\nwhile True: time.sleep(1)")
    looking = asyncio.ensure_future(processes.look(PNG, is_whole=True))
    await eventually(lambda: bool(processes.processes))
    (process,) = processes.processes
    looking.cancel()
    await asyncio.wait([looking])
    assert looking.cancelled()
    assert process.returncode is not None
