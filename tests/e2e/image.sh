#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh OUT.tar [EXTRA_FILE[:PATH_IN_IMAGE]...]   makes two tiny OCI images in one archive, from Debian's busybox-static:
#   localhost/e2e/busybox:1   busybox with its applet links; the extra files are added too (executable, mode kept)
#   localhost/e2e/pause:1     the same layer, entry point "sleep infinity" (the pod sandbox image)
# Needs python3 and a static busybox (BUSYBOX=path, default the one in PATH). The archive is byte-for-byte reproducible.
set -eu
OUT=${1:?usage: image.sh OUT.tar [file[:path]...]}; shift
BUSYBOX=${BUSYBOX:-$(command -v busybox)}
/usr/bin/python3 - "$OUT" "$BUSYBOX" "$@" <<'P'
import hashlib, io, json, os, subprocess, sys, tarfile
out, busybox, extra = sys.argv[1], sys.argv[2], sys.argv[3:]

def add(t, name, data=b"", mode=0o755, typ=tarfile.REGTYPE, link=""):
    i = tarfile.TarInfo(name); i.mode, i.type, i.linkname, i.size = mode, typ, link, len(data)
    t.addfile(i, io.BytesIO(data))

layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT) as t:
    for d in ("bin", "etc", "tmp", "proc", "sys", "dev", "root", "usr", "usr/bin", "var"):
        add(t, d, mode=0o1777 if d == "tmp" else 0o755, typ=tarfile.DIRTYPE)
    add(t, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n", 0o644)
    add(t, "etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)
    add(t, "bin/busybox", open(busybox, "rb").read())
    for a in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if a != "busybox":
            add(t, "bin/" + a, typ=tarfile.SYMTYPE, link="busybox")
    for e in extra:
        src, _, dst = e.partition(":")
        add(t, (dst or "usr/bin/" + os.path.basename(src)).lstrip("/"), open(src, "rb").read(), os.stat(src).st_mode & 0o777)
layer = layer.getvalue()
diff_id = "sha256:" + hashlib.sha256(layer).hexdigest()

blobs = {}
def blob(data, media):
    h = hashlib.sha256(data).hexdigest(); blobs[h] = data
    return {"mediaType": media, "digest": "sha256:" + h, "size": len(data)}
def js(o): return json.dumps(o, sort_keys=True).encode()

lay = blob(layer, "application/vnd.oci.image.layer.v1.tar")
manifests = []
for name, cfg in (("localhost/e2e/busybox:1", {"Cmd": ["/bin/sh"]}),
                  ("localhost/e2e/pause:1", {"Entrypoint": ["/bin/busybox", "sleep", "infinity"]})):
    cfg["Env"] = ["PATH=/usr/bin:/bin"]
    config = blob(js({"architecture": "amd64", "os": "linux", "config": cfg,
                      "rootfs": {"type": "layers", "diff_ids": [diff_id]}}), "application/vnd.oci.image.config.v1+json")
    m = blob(js({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
                 "layers": [lay]}), "application/vnd.oci.image.manifest.v1+json")
    m["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1]}
    m["platform"] = {"architecture": "amd64", "os": "linux"}
    manifests.append(m)
with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as t:
    add(t, "oci-layout", js({"imageLayoutVersion": "1.0.0"}), 0o644)
    add(t, "index.json", js({"schemaVersion": 2, "manifests": manifests}), 0o644)
    for d in ("blobs", "blobs/sha256"): add(t, d, typ=tarfile.DIRTYPE)
    for h, data in blobs.items(): add(t, "blobs/sha256/" + h, data, 0o644)
P
