"""A tool whose server has a known behaviour: netbench's HTTP client, and known_server.py instead of nginx."""

import sys
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, Field

from netbench.tools.http import Http, HttpOptions

SERVER = Path(__file__).with_name("known_server.py")


class KnownOptions(HttpOptions):
    """The behaviour, as JSON of known_server.py."""

    behaviour: str = Field(default="{}")


class Known(Http):
    """Requests to a server of known behaviour."""

    Options: ClassVar[type[BaseModel]] = KnownOptions
    server_programs = ("python3",)
    may_need = ()

    def before_serving(self, ends):
        return

    def server_command(self, ends):
        return [sys.executable, str(SERVER), ends.bound, str(ends.port), self.options.behaviour]
