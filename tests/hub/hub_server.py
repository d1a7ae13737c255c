"""A Hugging Face Hub in memory: what `push_to_hub`, `upload_folder`, `from_pretrained` and `load_dataset` ask for.

Start it with `python hub_server.py`; it prints its address and serves until killed. Clients need `HF_ENDPOINT` set to
that address, any `HF_TOKEN`, and `HF_HUB_DISABLE_XET=1` (uploads then go through Git LFS), all before
`huggingface_hub` is imported. Everybody is `someone`, who may not make repositories of `nobody`; the token `hf_wrong`
is none, `hf_read` may only read, `hf_fine` does not say what it may.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import RLock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

USER = "someone"
FORBIDDEN = "nobody"  # whose repositories nobody may write
WRONG_TOKEN = "Bearer hf_wrong"
REPOSITORY = r"(?P<repo>(datasets/)?[^/]+/[^/]+)"  # a dataset's name begins with datasets/
API = rf"/api/(?:models/)?{REPOSITORY}"
LARGE = (".safetensors", ".bin", ".parquet")
Files = dict[str, bytes]


def blob_id(data: bytes) -> str:
    """Git's identifier of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    """The commits of one repository, and the last one of each branch."""

    def __init__(self, private: bool = False) -> None:
        self.private = private
        self.commits: dict[str, Files] = {}
        self.branches = {"main": ""}
        self.tags: dict[str, str] = {}
        self.commit({}, "main")

    def commit(self, files: Files, branch: str) -> None:
        self.branches[branch] = hashlib.sha1(f"{len(self.commits)}{sorted(files)}".encode()).hexdigest()
        self.commits[self.branches[branch]] = files

    def sha(self, revision: str) -> str:
        """The commit of a branch; one of the real Hub (MTEB pins those) stands for that of `main`."""
        pinned = re.fullmatch("[0-9a-f]{40}", revision) and revision not in self.commits
        return {**self.tags, **self.branches}.get("main" if pinned else revision, revision)

    def files(self, revision: str) -> Files | None:
        """Files of a branch or of a commit."""
        return self.commits.get(self.sha(revision))


class Hub:
    """All repositories, and the large files uploaded so far by SHA-256."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.large: Files = {}
        self.lock = RLock()

    def large_id(self, data: bytes) -> str | None:
        """SHA-256 of a file that came in as a large one."""
        digest = hashlib.sha256(data).hexdigest()
        return digest if digest in self.large else None


class Handler(BaseHTTPRequestHandler):
    """One request; `ROUTES` says which method answers it."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        """Keep standard error for errors."""

    def answer(self) -> None:
        body = self.read()
        path = urlsplit(self.path).path
        if self.headers.get("Authorization") == WRONG_TOKEN:
            return self.refuse("", "Invalid credentials in Authorization header", 401)
        with self.hub.lock:
            for pattern, method in ROUTES.items():
                if match := re.fullmatch(pattern, path):
                    fields = {key: unquote(value) for key, value in match.groupdict().items() if value is not None}
                    return method(self, body, **fields)
        return self.refuse("EntryNotFound", f"no route for {self.command} {path}")

    do_GET = do_POST = do_PUT = do_HEAD = answer

    def read(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def send(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send bytes as they are, anything else as JSON."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, code: str, message: str, status: int = 404) -> None:
        self.send({"error": message}, status, {"X-Error-Code": code, "X-Error-Message": message})

    def find(self, repo: str, revision: str = "main") -> Files | None:
        """Files of a revision; None once the request has been refused."""
        if repo not in self.hub.repositories:
            self.refuse("RepoNotFound", "Repository not found")
            return None
        files = self.hub.repositories[repo].files(revision)
        if files is None:
            self.refuse("RevisionNotFound", "Revision not found")
        return files

    def validate_card(self, body: bytes) -> None:
        if b"license: no licence" in body:  # as the Hub answers where a card names a licence that it does not know
            self.send(b'Invalid metadata in README.md.\n- "license" must be one of [apache-2.0, mit]', 400)
        else:
            self.send({"errors": [], "warnings": []})

    def who(self, _: bytes) -> None:
        roles = {"Bearer hf_read": "read", "Bearer hf_fine": "fineGrained"}
        role = roles.get(self.headers["Authorization"], "write")
        self.send({"type": "user", "name": USER, "orgs": [], "auth": {"accessToken": {"role": role}}})

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        kind = "datasets/" if asked.get("type") == "dataset" else ""
        owner = asked.get("organization") or USER
        if owner == FORBIDDEN:
            return self.refuse("", f"You don't have the rights to create a model under the namespace {owner!r}", 403)
        repo = f"{kind}{owner}/{asked['name']}"
        exists = repo in self.hub.repositories
        private = asked.get("private") is True or asked.get("visibility") == "private"
        self.hub.repositories.setdefault(repo, Repository(private))
        self.send({"url": f"http://{self.headers['Host']}/{repo}", "id": repo}, 409 if exists else 200)

    def branch(self, body: bytes, repo: str, revision: str) -> None:
        repository = self.hub.repositories[repo]
        known = revision in repository.branches
        start = json.loads(body or b"{}").get("startingPoint") or "main"
        repository.branches.setdefault(revision, repository.sha(start))
        self.send({}, 409 if known else 200)

    def tag(self, body: bytes, repo: str, revision: str) -> None:
        repository = self.hub.repositories[repo]
        repository.tags[json.loads(body)["tag"]] = repository.sha(revision)
        self.send({})

    def references(self, _: bytes, repo: str) -> None:
        if self.find(repo) is not None:
            repository = self.hub.repositories[repo]
            kinds = {"branches": repository.branches, "tags": repository.tags, "converts": dict[str, str]()}
            self.send(
                {
                    kind: [{"name": name, "ref": name, "targetCommit": sha} for name, sha in all_of.items()]
                    for kind, all_of in kinds.items()
                }
            )

    def plan_upload(self, body: bytes, repo: str, revision: str) -> None:
        if self.find(repo) is not None:
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = {path: "lfs" if path.endswith(LARGE) else "regular" for path in paths}
            self.send({"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes.items()]})

    def plan_large(self, body: bytes, repo: str) -> None:
        objects = [{"oid": wanted["oid"], "size": wanted["size"]} for wanted in json.loads(body)["objects"]]
        for entry in objects:
            if entry["oid"] not in self.hub.large:
                entry["actions"] = {"upload": {"href": f"http://{self.headers['Host']}/large/{entry['oid']}"}}
        self.send({"transfer": "basic", "objects": objects}, headers={"Content-Type": "application/vnd.git-lfs+json"})

    def upload_large(self, body: bytes, oid: str) -> None:
        self.hub.large[oid] = body
        self.send(b"", 200 if self.hub.large_id(body) == oid else 400)

    def commit(self, body: bytes, repo: str, revision: str) -> None:
        files = self.find(repo, revision)
        if files is None:
            return
        files = dict(files)
        repository = self.hub.repositories[repo]
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header" and value.get("parentCommit") not in (None, repository.sha(revision)):
                return self.refuse("", "A commit has happened since. Please refresh and try again.", 412)
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        repository.commit(files, revision)
        sha = repository.sha(revision)
        url = f"http://{self.headers['Host']}/{repo}/commit/{sha}"
        self.send({"success": True, "commitOid": sha, "commitUrl": url})

    def info(self, _: bytes, repo: str, revision: str = "main") -> None:
        files = self.find(repo, revision)
        if files is not None:
            names = [{"rfilename": name} for name in sorted(files)]
            sha = self.hub.repositories[repo].sha(revision)
            name, private = repo.removeprefix("datasets/"), self.hub.repositories[repo].private
            self.send({"id": name, "sha": sha, "private": private, "tags": [], "siblings": names})

    def tree(self, _: bytes, repo: str, revision: str, folder: str = "") -> None:
        files = self.find(repo, revision)
        if files is None:
            return
        prefix = f"{folder}/" if folder else ""
        deep = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() in ("true", "1")
        found: dict[str, bytes | None] = {}
        for name, data in sorted(files.items()):
            if name.startswith(prefix):
                parts = name.removeprefix(prefix).split("/")
                found.update({prefix + "/".join(parts[:end]): None for end in range(1, len(parts) if deep else 2)})
                if deep or len(parts) == 1:
                    found[name] = data
        if found or not folder:
            self.send([self.entry(name, data) for name, data in found.items()])
        else:
            self.refuse("EntryNotFound", f"{folder} does not exist")

    def entry(self, path: str, data: bytes | None) -> dict[str, Any]:
        """What listings say of a file, or of a folder (None)."""
        if data is None:
            return {"type": "directory", "path": path, "oid": "2" * 40, "size": 0}
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": blob_id(data)}
        if large := self.hub.large_id(data):
            entry["lfs"] = {"oid": large, "size": len(data), "pointerSize": 130}
        return entry

    def paths(self, body: bytes, repo: str, revision: str) -> None:
        files = self.find(repo, revision)
        if files is None:
            return
        if "json" in self.headers.get("Content-Type", ""):
            wanted = json.loads(body)["paths"]
        else:
            wanted = parse_qs(body.decode())["paths"]
        folders = {path for path in wanted if any(name.startswith(path + "/") for name in files)}
        found = [(path, files.get(path)) for path in wanted if path in files or path in folders]
        self.send([self.entry(path, data) for path, data in found])

    def download(self, _: bytes, repo: str, revision: str, path: str) -> None:
        files = self.find(repo, revision)
        if files is None:
            return
        if path not in files:
            return self.refuse("EntryNotFound", "Entry not found")
        data = files[path]
        sha = self.hub.repositories[repo].sha(revision)
        tag = f'"{self.hub.large_id(data) or blob_id(data)}"'
        headers = {"X-Repo-Commit": sha, "ETag": tag, "X-Linked-Size": str(len(data)), "Accept-Ranges": "bytes"}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            return self.send(data[start : end + 1], 206, headers)
        self.send(data, headers=headers)


ROUTES: dict[str, Callable[..., None]] = {
    r"/api/validate-yaml": Handler.validate_card,
    r"/api/whoami-v2": Handler.who,
    r"/api/repos/create": Handler.create,
    rf"{API}/branch/(?P<revision>[^/]+)": Handler.branch,
    rf"{API}/tag/(?P<revision>[^/]+)": Handler.tag,
    rf"{API}/refs": Handler.references,
    rf"{API}/preupload/(?P<revision>[^/]+)": Handler.plan_upload,
    rf"/{REPOSITORY}\.git/info/lfs/objects/batch": Handler.plan_large,
    r"/large/(?P<oid>[0-9a-f]{64})": Handler.upload_large,
    rf"{API}/commit/(?P<revision>[^/]+)": Handler.commit,
    rf"{API}(/revision/(?P<revision>[^/]+))?": Handler.info,
    rf"{API}/tree/(?P<revision>[^/]+)(/(?P<folder>.+))?": Handler.tree,
    rf"{API}/paths-info/(?P<revision>[^/]+)": Handler.paths,
    rf"/{REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)": Handler.download,
}


def make_server(port: int = 0, handler: type[Handler] = Handler, **state: Any) -> ThreadingHTTPServer:
    """A server of an empty Hub on `port` of this machine; 0 takes a free one.

    Args:
        port: to listen on.
        handler: of the requests.
        state: attributes of the handler, such as another `hub`.
    """
    own = type("HubHandler", (handler,), {"hub": Hub(), **state})
    return ThreadingHTTPServer(("127.0.0.1", port), own)


if __name__ == "__main__":
    server = make_server()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
