"""Downloads from a real server on this machine: progress, resume, checksum."""

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from torch_srelu.lab.data import download
from torch_srelu.lab.data.datasets import DATASETS, DataError, DatasetSpec, RemoteFile

CONTENT = bytes(range(256)) * 4000  # more than one chunk


class Server(ThreadingHTTPServer):
    breaks_after: int | None = None  # bytes, after which the connection is cut
    ranges = True  # whether it can continue
    asked: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server  # type: ignore[assignment]

    def do_GET(self) -> None:
        self.server.asked.append(self.headers["Range"])
        if self.path != "/file.tar.gz":
            self.send_error(404)
            return
        start = 0
        if self.server.ranges and self.headers["Range"]:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(CONTENT):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start:][: self.server.breaks_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def offered(server: Server, path: str = "file.tar.gz", md5: str | None = None) -> DatasetSpec:
    url = f"http://127.0.0.1:{server.server_address[1]}/{path}"
    source = RemoteFile(url, md5 or hashlib.md5(CONTENT).hexdigest())
    return dataclasses.replace(DATASETS["cifar10"], sources=(source,))


def test_a_download_reports_its_progress(server, tmp_path):
    seen: list[tuple[str, int, int | None]] = []
    path = download.get(offered(server), tmp_path, lambda *args: seen.append(args))
    assert path == tmp_path / "file.tar.gz"
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]
    assert seen[0] == ("file.tar.gz", 0, len(CONTENT))
    assert seen[-1] == ("file.tar.gz", len(CONTENT), len(CONTENT))
    assert len(seen) > 3


def test_what_is_there_is_not_downloaded_again(server, tmp_path):
    download.get(offered(server), tmp_path)
    download.get(offered(server), tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path, ranges):
    server.breaks_after, server.ranges = 300_000, ranges
    with pytest.raises(DataError, match="continues where it stopped"):
        download.get(offered(server), tmp_path)
    assert not (tmp_path / "file.tar.gz").exists()
    server.breaks_after = None
    seen: list[int] = []
    path = download.get(offered(server), tmp_path, lambda _, have, __: seen.append(have))
    assert path.read_bytes() == CONTENT
    assert server.asked == ["bytes=0-", "bytes=300000-"]
    assert seen[0] == (300_000 if ranges else 0)


def test_a_complete_part_is_only_checked(server, tmp_path):
    (tmp_path / "file.tar.gz.part").write_bytes(CONTENT)
    assert download.get(offered(server), tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_is_discarded(server, tmp_path):
    wrong = hashlib.md5(b"").hexdigest()
    found = hashlib.md5(CONTENT).hexdigest()
    with pytest.raises(DataError, match=f"md5 {found}, expected {wrong}"):
        download.get(offered(server, md5=wrong), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_and_an_absent_server(server, tmp_path):
    with pytest.raises(DataError, match="answered 404"):
        download.get(offered(server, "other.tar.gz"), tmp_path)
    absent = dataclasses.replace(
        DATASETS["cifar10"], sources=(RemoteFile("http://127.0.0.1:1/file.tar.gz", "0"),)
    )
    with pytest.raises(DataError, match="cannot be reached"):
        download.get(absent, tmp_path)


def test_digits_need_no_download(tmp_path):
    with pytest.raises(DataError, match="part of scikit-learn"):
        download.get(DATASETS["digits"], tmp_path)
