#!/usr/bin/env python3
"""Writes the image's bill of materials as SPDX 2.3 JSON to stdout. Called by deploy/rootfs.sh.

    sbom.py ROOT FILES

FILES has a line "DEST|SOURCE|PACKAGE" for each file of the tree that was taken from this machine. Every file below ROOT is listed with its
digests; a package is one of Debian, one of the Python registry (CUDA libraries), Spillway itself, or llhttp, whose C sources are
compiled into the server. The same tree gives the same bytes: the time is SOURCE_DATE_EPOCH, or the beginning of 1970."""

import datetime
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
NONE = "NOASSERTION"
# Where the build takes llhttp from, and how it gets into the server: as sources, or as a library that the tree lists by itself.
COMPILED_IN = ["node-llhttp"]


def debian(name):
    """(version, architecture, source package, maintainer) of an installed package."""
    out = subprocess.run(["dpkg-query", "-W", "-f", "${Version}|${Architecture}|${source:Package}|${Maintainer}\n", name],
                         capture_output=True, text=True, check=True).stdout
    return out.split("\n")[0].split("|")


def installed(name):
    return subprocess.run(["dpkg-query", "-W", name], capture_output=True).returncode == 0


def wheel_of(path):
    """(name, version) of the Python package that installed the file, or None."""
    folder = os.path.dirname(path)
    while folder != "/":
        for record in glob.glob(os.path.join(glob.escape(folder), "*.dist-info", "RECORD")):
            with open(record, encoding="utf-8") as f:
                if any(line.split(",")[0] == os.path.relpath(path, folder) for line in f):
                    return os.path.basename(os.path.dirname(record))[: -len(".dist-info")].replace("_", "-").rsplit("-", 1)
        folder = os.path.dirname(folder)
    return None


def version_of_spillway():
    with open(os.path.join(HERE, "..", "CMakeLists.txt"), encoding="utf-8") as f:
        return re.search(r"^project\(spillway VERSION (\S+)", f.read(), re.M).group(1)


def spdx_id(kind, name):
    return "SPDXRef-%s-%s" % (kind, re.sub(r"[^A-Za-z0-9.-]", "-", name.strip("/")))


def digests(path):
    with open(path, "rb") as f:
        data = f.read()
    return [{"algorithm": a, "checksumValue": hashlib.new(a.lower(), data).hexdigest()} for a in ("SHA1", "SHA256")]


def package(name, version, supplier=NONE, licence=NONE, purl=None):
    row = {"SPDXID": spdx_id("Package", name), "name": name, "versionInfo": version, "supplier": supplier, "downloadLocation": NONE,
           "filesAnalyzed": False, "licenseConcluded": NONE, "licenseDeclared": licence, "copyrightText": NONE}
    if purl:
        row["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    return row


def debian_package(name):
    version, arch, source, maintainer = debian(name)
    row = package(name, version, "Organization: " + maintainer, purl="pkg:deb/debian/%s@%s?arch=%s" % (name, version.replace("+", "%2B"), arch))
    row["sourceInfo"] = "built from the Debian source package %s; its licence: usr/share/doc/%s/copyright" % (source, name)
    return row


def main():
    root, listed = sys.argv[1:]
    owner = {}
    packages = {"spillway": package("spillway", version_of_spillway(), "Organization: Spillway", "Apache-2.0")}
    with open(listed, encoding="utf-8") as f:
        for line in f:
            dest, source, name = line.rstrip("\n").split("|")
            wheel = None if name else wheel_of(source)
            if wheel:
                name = wheel[0]
                packages[name] = package(*wheel, purl="pkg:pypi/%s@%s" % tuple(wheel))
            elif not name:
                name = os.path.basename(source)
                packages[name] = package(name, NONE)
            elif name not in packages:
                packages[name] = debian_package(name)
            owner[dest] = name
    image, server = spdx_id("Package", "image"), spdx_id("Package", "spillway")
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", image)]
    relations += [(image, "CONTAINS", spdx_id("Package", name)) for name in packages]
    relations += [(server, "DEPENDS_ON", spdx_id("Package", name)) for name in packages if name != "spillway"]
    for name in COMPILED_IN:
        if installed(name):
            packages[name] = debian_package(name)
            relations.append((server, "STATIC_LINK", spdx_id("Package", name)))
    files = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            dest = "/" + os.path.relpath(path, root)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            files.append({"SPDXID": spdx_id("File", dest), "fileName": "." + dest, "checksums": digests(path), "licenseConcluded": NONE,
                          "copyrightText": NONE})
            doc = re.match(r"/usr/share/doc/([^/]+)/", dest)
            by = owner.get(dest) or (doc and doc.group(1)) or "spillway"
            relations += [(image, "CONTAINS", spdx_id("File", dest)), (spdx_id("File", dest), "GENERATED_FROM", spdx_id("Package", by))]
    files.sort(key=lambda x: x["fileName"])
    # All files of the image are here, but for this list itself; a package of Debian has more than the image takes of it.
    packages["image"] = package("image", packages["spillway"]["versionInfo"], "Organization: Spillway")
    packages["image"]["filesAnalyzed"] = True
    sums = "".join(sorted(f["checksums"][0]["checksumValue"] for f in files))
    packages["image"]["packageVerificationCode"] = {"packageVerificationCodeValue": hashlib.sha1(sums.encode()).hexdigest(),
                                                    "packageVerificationCodeExcludedFiles": ["./usr/share/doc/spillway/SBOM.spdx.json"]}
    made = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "spillway-" + packages["spillway"]["versionInfo"],
        "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: spillway-sbom"]},
        "packages": [packages[name] for name in sorted(packages)],
        "files": files,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in sorted(relations)],
    }
    content = json.dumps(document, sort_keys=True)
    document["documentNamespace"] = "urn:uuid:%s" % uuid.uuid5(uuid.NAMESPACE_OID, content)
    json.dump(document, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
