"""An object store on loopback: nginx serves a folder to S3 clients, a proxy adds latency, nginx caches."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BUCKET = 'bench'
CONFIG = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log {log}; sendfile on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 600;
  client_body_temp_path {folder}/tmp; proxy_temp_path {folder}/tmp; fastcgi_temp_path {folder}/tmp;
  uwsgi_temp_path {folder}/tmp; scgi_temp_path {folder}/tmp;
  server {{
    listen 127.0.0.1:{port}; root {root};
    location / {{ etag on; }}
    location ~ ^/[^/]*/?$ {{ default_type application/xml; return 200 '<ListBucketResult/>'; }}
  }}
}}
"""

CACHE_PAGE = Path(__file__).parents[1] / 'docs/recipes/cache-server.md'
CACHE_CONFIG = """
daemon off;
user {user} {group};
pid {folder}/pid;
error_log {folder}/error.log;
worker_processes 2;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  {site}
}}
"""


def nginx_path() -> str | None:
    """Returns the path of nginx, if it is installed."""
    return shutil.which('nginx') or shutil.which('nginx', path='/usr/sbin:/usr/local/sbin')


@contextlib.contextmanager
def nginx(root: Path, log: str = 'off') -> Iterator[str]:
    """Serves a folder that contains a folder for each bucket; yields the address.

    Args:
        root: The folder.
        log: A file that gets a line for each request.
    """
    folder = root.parent / 'nginx'
    (folder / 'tmp').mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / 'nginx.conf').write_text(CONFIG.format(folder=folder, root=root, port=port, log=log))
    command = [nginx_path() or 'nginx', '-e', str(folder / 'error.log'), '-c', str(folder / 'nginx.conf')]
    with served(command, port) as url:
        yield url


@contextlib.contextmanager
def cache_server(folder: Path, bucket: str, host: str = 'bucket.s3.amazonaws.com') -> Iterator[str]:
    """Runs the nginx of docs/recipes/cache-server.md in front of a bucket; yields its address.

    Args:
        folder: A new folder for its files, and for the cache.
        bucket: The address of the server of the bucket.
        host: The name of the bucket in requests.
    """
    import certifi

    (site,) = re.findall(r'^```nginx\n(.*?)^```', CACHE_PAGE.read_text(), re.DOTALL | re.MULTILINE)
    port = free_port()
    for text, own in (
        ('/var/cache/bags', f'{folder}/cache'),
        ('10.0.0.5:8000', f'127.0.0.1:{port}'),
        ('set $bucket datasets.s3.eu-west-1.amazonaws.com', f'set $bucket {host}'),
        ('https://$bucket', bucket),
        ('/etc/ssl/certs/ca-certificates.crt', certifi.where()),
    ):
        if site.count(text) != 1:
            raise ValueError(f'{CACHE_PAGE}: expected {text!r} once in the configuration of nginx')
        site = site.replace(text, own)
    user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    folder.mkdir()
    (folder / 'nginx.conf').write_text(CACHE_CONFIG.format(folder=folder, site=site, user=user, group=group))
    command = [nginx_path() or 'nginx', '-e', f'{folder}/error.log', '-c', f'{folder}/nginx.conf']
    checked = subprocess.run([*command, '-t'], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise RuntimeError(checked.stderr)
    with served(command, port) as url:
        yield url


@contextlib.contextmanager
def delayed(url: str, seconds: float) -> Iterator[str]:
    """Runs a proxy that delays what clients send by so many seconds; yields its address."""
    port = free_port()
    command = [sys.executable, '-m', 'benchmarks.server', str(port), url.rpartition(':')[2], str(seconds)]
    with served(command, port) as address:
        yield address


@contextlib.contextmanager
def served(command: list[str], port: int) -> Iterator[str]:
    """Runs a server until the block ends."""
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1])
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port), 1):
                break
            time.sleep(0.05)
        yield f'http://127.0.0.1:{port}'
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """Returns a port that is not in use."""
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return int(found.getsockname()[1])


async def proxy(port: int, target: int, seconds: float) -> None:
    """Forwards bytes in order: those of clients after a delay, those of the server at once."""

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def collect() -> None:
            data = b'x'
            while data:
                data = await reader.read(1 << 16)
                queue.put_nowait((time.monotonic() + seconds, data))

        task = asyncio.ensure_future(collect())
        try:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        finally:
            task.cancel()
            writer.close()

    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 20):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to, back = await asyncio.open_connection('127.0.0.1', target, limit=1 << 20)
        await asyncio.gather(late(reader, back), at_once(to, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, '127.0.0.1', port, limit=1 << 20)
    async with server:
        await server.serve_forever()


if __name__ == '__main__':
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(proxy(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
    os._exit(0)
