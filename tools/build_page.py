"""Builds the page of `bags view` with the wheel, where Node.js is installed. The hook of hatchling."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MIN_NODE = (20, 19)


class PageHook(BuildHookInterface[Any]):
    """Without Node.js, or if a step fails, the wheel has no page, and `bags view` says how to get it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Runs before the files of the wheel are collected; `version` is 'editable' or 'standard'."""
        source, page = Path(self.root, 'viewer'), Path(self.root, 'bags/viewer/static/index.html')
        if version != 'standard' or page.exists() or not (source / 'package.json').exists():
            return
        npm = shutil.which('npm')
        if npm is None or node_version() < MIN_NODE:
            self.app.display_warning('the page of `bags view` is not built: it needs Node.js 20.19 or newer')
            return
        quiet = ('--loglevel', 'error', '--no-audit', '--no-fund')
        for command in ([npm, 'ci', *quiet], [npm, 'run', '--silent', 'build', '--', '--logLevel', 'warn']):
            done = subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)
            if done.returncode:
                shutil.rmtree(page.parent, ignore_errors=True)
                text = (done.stderr or done.stdout).strip()
                self.app.display_warning(f'the page of `bags view` is not built: npm {command[1]}: {text}')
                return


def node_version() -> tuple[int, ...]:
    """Returns the version of Node.js, such as (20, 19, 2); empty if it is not installed."""
    node = shutil.which('node')
    if node is None:
        return ()
    text = subprocess.run([node, '--version'], check=False, capture_output=True, text=True).stdout
    return tuple(int(part) for part in text.strip().removeprefix('v').split('.') if part.isdigit())
