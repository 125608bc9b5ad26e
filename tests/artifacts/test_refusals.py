"""Invalid and untrusted files are refused for the right reason, before any of their code runs."""

import io
import json
import os
import struct
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZipFile

import numpy as np
import pytest
import scipy.sparse as sp
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC
from xgboost import XGBClassifier

from tests.artifacts.crafted import (
    archive_of,
    declaring,
    members_of,
    rebuilt,
    resealed,
    schema_of,
    sealed,
    with_members,
    with_schema,
)
from transcendent import ExactSearch, InductiveEvaluator
from transcendent._utils.files import write_whole
from transcendent.artifacts import container, load, open_artifact, save
from transcendent.errors import ArtifactError, InfeasibleError
from transcendent.measures import Probability
from transcendent.metrics import F1

X, y = make_classification(300, random_state=0)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "ice.transcendent"
    save(InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y), path)
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path):
    """Load bytes that must be refused, and return the reason."""

    def attempt(data, **given):
        path = tmp_path / "bad.transcendent"
        path.write_bytes(data)
        with pytest.raises(ArtifactError) as caught:
            load(path, **given)
        return str(caught.value)

    return attempt


def pem(private):
    private_pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public_pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private_pem, public_pem


OURS, THEIRS = (pem(ed25519.Ed25519PrivateKey.generate()) for _ in range(2))


class TestDamage:
    def test_any_single_byte(self, good, refused):
        generator = np.random.default_rng(0)
        places = {0, 1, len(good) - 1, len(good) - 232, *generator.integers(len(good), size=200).tolist()}
        for place in places:
            damaged = bytearray(good)
            damaged[place] ^= 1 << int(generator.integers(8))
            assert "seal" in refused(bytes(damaged))

    @pytest.mark.parametrize("kept", [0, 1, 100, 0.5, -1, -232, -233])
    def test_a_truncated_file(self, good, refused, kept):
        cut = int(kept * len(good)) if isinstance(kept, float) else kept
        assert "does not end with a seal" in refused(good[:cut])

    def test_bytes_added(self, good, refused):
        assert "not end with a seal" in refused(good + b"\n")
        assert "digest" in refused(b"\n" + good)

    def test_something_else_altogether(self, refused):
        assert "not an artifact" in refused(b"PK\x03\x04 this is not it")

    def test_a_missing_file_is_not_an_artifact_error(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "nowhere")


class TestFiles:
    @pytest.fixture
    def reason(self, tmp_path):
        def attempt(**given):
            with pytest.raises(ArtifactError, match="x is refused: ") as caught:
                load(tmp_path / "x", **given)
            return str(caught.value)

        return attempt

    def test_a_pipe(self, tmp_path, reason):
        os.mkfifo(tmp_path / "x")
        assert "not a regular file" in reason()

    def test_a_folder(self, tmp_path, reason):
        (tmp_path / "x").mkdir()
        assert "not a regular file" in reason()

    def test_a_device(self, tmp_path, reason):
        (tmp_path / "x").symlink_to("/dev/zero")
        assert "not a regular file" in reason()

    def test_a_huge_file_with_nothing_in_it(self, tmp_path, reason):
        with (tmp_path / "x").open("wb") as file:
            file.truncate(10 * 2**30)
        assert "more than the limit of 4,294,967,296" in reason()
        with (tmp_path / "x").open("wb") as file:
            file.truncate(4 * 2**30)
        tracemalloc.start()
        try:
            assert "not end with a seal" in reason()
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()

    def test_how_much_is_read_can_be_said(self, good, tmp_path, reason):
        (tmp_path / "x").write_bytes(good)
        assert f"more than the limit of {len(good) - 1:,}" in reason(max_bytes=len(good) - 1)
        unpacked = sum(map(len, members_of(good).values()))
        assert f"more than the limit of {unpacked - 1:,}" in reason(max_bytes=unpacked - 1)
        assert load(tmp_path / "x", max_bytes=unpacked).predict(X).shape == (300,)

    @pytest.mark.parametrize("error", [EOFError("x"), MemoryError(), struct.error("x"), IndexError("x")])
    def test_whatever_reading_raises(self, good, tmp_path, reason, monkeypatch, error):
        def read(*_):
            raise error

        (tmp_path / "x").write_bytes(good)
        monkeypatch.setattr(container, "content_of", read)
        assert "cannot be read" in reason() or "not enough memory" in reason()

    def test_nothing_in_it_steers_the_terminal(self, good, tmp_path, reason):
        def lie(manifest):
            manifest["rejector"] = "Inductive\x1b[31mEvaluator\u202e"

        (tmp_path / "x").write_bytes(rebuilt(good, members_of(good), lie))
        assert r"\x1b[31m" in repr(open_artifact(tmp_path / "x"))
        for text in (repr(open_artifact(tmp_path / "x")), reason()):
            assert text.replace("\n", "").isprintable()


class TestKeysOfTheEnvironment:
    @pytest.fixture
    def key(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TRANSCENDENT_PUBLIC_KEY", str(tmp_path / "key.pub"))
        (tmp_path / "key.pub").write_bytes(OURS[1])
        return tmp_path / "key.pub"

    def test_a_signature_is_required(self, good, refused, key, tmp_path):
        assert "nothing says who made it" in refused(good)
        assert "nothing says who made it" in refused(good, public_key=OURS[1])
        ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
        save(ice, tmp_path / "ours", signing_key=OURS[0])
        save(ice, tmp_path / "theirs", signing_key=THEIRS[0])
        assert open_artifact(tmp_path / "ours").signature_checked
        assert "signature does not match" in refused((tmp_path / "theirs").read_bytes())
        assert open_artifact(tmp_path / "theirs", public_key=THEIRS[1]).signature_checked

    @pytest.mark.parametrize("value", ["", " "])
    def test_empty(self, good, refused, monkeypatch, value):
        monkeypatch.setenv("TRANSCENDENT_PUBLIC_KEY", value)
        assert "TRANSCENDENT_PUBLIC_KEY is empty" in refused(good)

    def test_a_key_that_cannot_be_read(self, good, refused, key):
        key.write_bytes(b"")
        assert "is not a public key in PEM format" in refused(good)
        key.unlink()
        assert "cannot be read: No such file" in refused(good)
        os.mkfifo(key)
        assert "not a regular file" in refused(good)


class TestSignatures:
    @pytest.fixture
    def signed(self, tmp_path):
        path = tmp_path / "signed.transcendent"
        save(InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y), path, signing_key=OURS[0])
        return path

    def test_the_right_key_opens(self, signed, tmp_path):
        assert open_artifact(signed, public_key=OURS[1]).signed
        (tmp_path / "key.pub").write_bytes(OURS[1])
        assert load(signed, public_key=tmp_path / "key.pub").predict(X).shape == (300,)

    def test_another_key_does_not(self, signed, refused):
        assert "signature does not match" in refused(signed.read_bytes(), public_key=THEIRS[1])

    def test_an_unsigned_file_is_refused_where_a_key_is_given(self, good, refused):
        assert "not signed" in refused(good, public_key=OURS[1])

    def test_a_signature_does_not_fit_another_content(self, signed, good, refused):
        moved = resealed(good)[:-130] + signed.read_bytes()[-130:]
        assert "signature does not match" in refused(moved, public_key=OURS[1])

    def test_without_a_key_the_signature_is_not_asked_for(self, signed, good, tmp_path):
        assert load(signed).predict(X).shape == (300,)
        (tmp_path / "unsigned").write_bytes(good)
        assert not open_artifact(tmp_path / "unsigned").signed

    def test_a_key_that_is_none(self, signed):
        with pytest.raises(ValueError, match="key in PEM format"):
            load(signed, public_key=b"not a key")
        with pytest.raises(ValueError, match="key in PEM format"):
            save(load(signed), signed, signing_key=OURS[1])
        with pytest.raises(ValueError, match="not Ed25519"):
            load(signed, public_key=pem(ec.generate_private_key(ec.SECP256R1()))[1])


class TestArchives:
    @pytest.mark.parametrize(
        "name", ["../../etc/cron.d/x", "/etc/passwd", "..", "a/../b", "a\\b", ".hidden", "C:x", ""]
    )
    def test_a_name_that_leads_elsewhere(self, good, refused, name):
        entries = [*members_of(good).items(), (name, b"x")]
        assert "which artifacts do not have" in refused(archive_of(entries))

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_two_files_of_one_name(self, good, refused):
        entries = [*members_of(good).items(), ("manifest.json", b"{}")]
        assert "two entries with the same name" in refused(archive_of(entries))

    def test_no_archive_at_all(self, refused):
        assert "cannot be read" in refused(sealed(b"nothing"))

    def test_a_zip_bomb_of_zeros_inside_skops(self, good, refused):
        buffer = io.BytesIO()
        with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
            archive.writestr("schema.json", b"{}" + b" " * 50_000_000)
        assert "zip bomb" in refused(with_members(good, **{"rejector.skops": buffer.getvalue()}))

    @pytest.mark.slow
    def test_a_zip_bomb_two_archives_deep(self, good, refused):
        zeros = io.BytesIO()
        sp.save_npz(zeros, sp.csr_array(np.ones((4000, 4000))))
        skops = members_of(good)["rejector.skops"]
        buffer = io.BytesIO(skops)
        with ZipFile(buffer, "a") as archive:
            archive.writestr("matrix.npz", zeros.getvalue())
        assert len(buffer.getvalue()) < 1_000_000
        assert "zip bomb" in refused(with_members(good, **{"rejector.skops": buffer.getvalue()}))

    def test_an_array_that_claims_more_than_it_holds(self, good, refused):
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(3))
        header = buffer.getvalue().replace(b"(3,), }         ", b"(999999999999,),}")
        bomb = io.BytesIO()
        with ZipFile(bomb, "w") as archive:
            for name in ("scores.npy", "actual.npy", "predicted.npy"):
                archive.writestr(name, header)
        assert "zip bomb" in refused(with_members(good, **{"calibration-0.npz": bomb.getvalue()}))

    def test_pickled_arrays(self, good, refused):
        buffer = io.BytesIO()
        np.savez(
            buffer, scores=np.array([{}], dtype=object), actual=np.zeros(1, int), predicted=np.zeros(1, int)
        )
        assert "allow_pickle" in refused(with_members(good, **{"calibration-0.npz": buffer.getvalue()}))


def peak_of(work):
    """Return the result of some work, and the most memory that it held, in bytes."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


ZEROS = bytes(64 << 20)
LITTLE = 4 << 20


@pytest.fixture(scope="module")
def bomb():
    """Zeros in one entry of an archive with a valid seal."""
    return archive_of([("calibration-100.npz", ZEROS)], ZIP_DEFLATED)


@pytest.fixture
def refused_in_little_memory(refused):
    def attempt(data):
        assert len(data) < LITTLE / 2
        reason, peak = peak_of(lambda: refused(data))
        assert peak < LITTLE
        return reason

    return attempt


class TestCompression:
    def test_entries_are_compressed_and_any_tool_reads_them(self, good):
        with ZipFile(io.BytesIO(good)) as archive:
            assert {entry.compress_type for entry in archive.infolist()} == {ZIP_DEFLATED}
            assert archive.testzip() is None
            assert len(good) < sum(entry.file_size for entry in archive.infolist()) / 3

    def test_equal_entries_make_equal_files(self, good):
        entries = members_of(good)
        assert container.pack(entries, None) == container.pack(entries, None)
        assert container.pack(entries, None)[0] == good

    def test_entries_that_are_not_compressed(self, good, tmp_path):
        (tmp_path / "x").write_bytes(archive_of(members_of(good).items()))
        assert load(tmp_path / "x").predict(X).shape == (300,)

    @pytest.mark.parametrize("method", [ZIP_BZIP2, ZIP_LZMA])
    def test_other_methods(self, good, refused, method):
        assert "a method that artifacts do not use" in refused(archive_of(members_of(good).items(), method))
        skops = io.BytesIO()
        with ZipFile(skops, "w", method) as archive:
            for name, content in members_of(members_of(good)["rejector.skops"]).items():
                archive.writestr(name, content)
        changed = with_members(good, **{"rejector.skops": skops.getvalue()})
        assert "a method that artifacts do not use" in refused(changed)

    def test_a_huge_ratio(self, bomb, refused_in_little_memory):
        assert "zip bomb" in refused_in_little_memory(bomb)

    @pytest.mark.parametrize("stated", [0, 1, 1000, 15 << 20])
    def test_more_than_it_declares(self, bomb, refused, stated):
        """With the checksum of as much as it declares, by which zipfile would be deceived."""
        lying = resealed(declaring(bomb, stated, prefix=bytes(stated)))
        reason, peak = peak_of(lambda: refused(lying))
        assert f"does not have the {stated:,} bytes it declares" in reason
        assert peak < LITTLE + 1.2 * stated

    def test_less_than_it_declares(self, good, refused):
        for stated in (10_000, 1_000_000):
            lying = archive_of([("manifest.json", b"{}" + b" " * 1000)], ZIP_DEFLATED)
            assert "bytes it declares" in refused(resealed(declaring(lying, stated)))

    @pytest.mark.parametrize("cut", [1, 10, 1000])
    def test_a_stream_that_ends_early_or_late(self, good, refused, cut):
        with ZipFile(io.BytesIO(good)) as archive:
            largest = max(archive.infolist(), key=lambda entry: entry.compress_size)
        for change in (-cut, cut):
            place = good.rindex(largest.filename.encode()) - 46
            lying = bytearray(good)
            struct.pack_into("<I", lying, place + 20, largest.compress_size + change)
            assert "bytes it declares" in refused(resealed(bytes(lying)))

    def test_many_entries_that_are_small_each(self, refused_in_little_memory):
        entries = [(f"calibration-{i}.npz", ZEROS[: 1 << 20]) for i in range(200)]
        assert "zip bomb" in refused_in_little_memory(archive_of(entries, ZIP_DEFLATED))

    def test_many_entries_of_the_same_bytes(self, bomb, refused_in_little_memory):
        content = declaring(bomb, 1 << 20)[: -container._SEAL_SIZE]
        start, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
        body, listed = content[:start], content[start:end]
        directory = b"".join(listed.replace(b"100.npz", b"%d.npz" % i) for i in range(100, 1000))
        ending = struct.pack("<4s4x2H2IH", b"PK\5\6", 900, 900, len(directory), start, container._SEAL_SIZE)
        assert "zip bomb" in refused_in_little_memory(sealed(body + directory + ending))

    def test_zeros_inside_of_every_kind_of_archive(self, good, refused_in_little_memory):
        inner = io.BytesIO()
        with ZipFile(inner, "w", ZIP_DEFLATED) as archive:
            archive.writestr("scores.npy", ZEROS)
        for name in ("calibration-0.npz", "rejector.skops"):
            changed = with_members(good, **{name: inner.getvalue()})
            assert "zip bomb" in refused_in_little_memory(changed)
            twice = archive_of(members_of(changed).items(), ZIP_DEFLATED)
            assert len(twice) < len(changed)
            assert "zip bomb" in refused_in_little_memory(twice)

    @pytest.mark.parametrize("name", ["schema.json", "a.npy", "a.npz"])
    def test_a_member_of_skops_that_is_more_than_it_declares(self, good, refused_in_little_memory, name):
        inner = io.BytesIO()
        with ZipFile(inner, "w", ZIP_DEFLATED) as archive:
            archive.writestr(name, b"{}" + ZEROS)
        lying = declaring(inner.getvalue(), 2, prefix=b"{}")
        changed = with_members(good, **{"rejector.skops": lying})
        assert "does not have the 2 bytes it declares" in refused_in_little_memory(changed)

    def test_one_compressed_matrix_under_many_nodes(self, good, refused):
        matrix = io.BytesIO()
        sp.save_npz(matrix, sp.csr_array(np.ones((1000, 1000))))
        skops = members_of(good)["rejector.skops"]
        schema = schema_of(skops)
        node = {"__class__": "csr_array", "__module__": "scipy.sparse._csr", "__loader__": "SparseMatrixNode"}
        node |= {"type": "scipy", "file": "m.npz"}
        schema["content"]["content"]["measure"] = {
            "__class__": "list",
            "__module__": "builtins",
            "__loader__": "ListNode",
            "content": [node] * 50,
        }
        buffer = io.BytesIO(with_schema(skops, schema))
        with ZipFile(buffer, "a") as archive:
            archive.writestr("m.npz", matrix.getvalue())
        assert "zip bomb" in refused(with_members(good, **{"rejector.skops": buffer.getvalue()}))

    def test_an_honest_file_takes_its_own_size(self):
        content = np.random.default_rng(0).integers(16, size=20_000_000, dtype=np.uint8).tobytes()
        data = archive_of([("calibration-0.npz", content)], ZIP_DEFLATED)
        entries, peak = peak_of(lambda: container.unpack(data, len(content)))
        assert entries == {"calibration-0.npz": content}
        assert peak < 1.2 * len(content)

    def test_what_shrinks_like_a_bomb_is_stored(self, tmp_path):
        ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
        ice.note = np.zeros(3_000_000)
        save(ice, tmp_path / "x")
        assert (tmp_path / "x").stat().st_size > ice.note.nbytes
        assert load(tmp_path / "x").note.shape == ice.note.shape

    @pytest.mark.slow
    def test_what_would_be_refused_is_not_saved(self, tmp_path):
        ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
        ice.note = sp.csr_array(np.ones((3000, 3000)))
        with pytest.raises(ArtifactError, match=r"cannot be saved: its rejector\.skops .* zip bomb"):
            save(ice, tmp_path / "x")
        assert not list(tmp_path.iterdir())


class TestManifests:
    def changed(self, good, **values):
        return rebuilt(good, members_of(good), lambda manifest: manifest.update(values))

    def test_none(self, good, refused):
        others = {name: data for name, data in members_of(good).items() if name != "manifest.json"}
        assert "has no manifest.json" in refused(archive_of(others.items()))

    @pytest.mark.parametrize(
        "text",
        [b"", b"[]", b"{}", b"\xff", b'{"format": 1}', b'{"format": 1, "files": {"a": 1}}', b"[" * 100_000],
    )
    def test_not_one_of_an_artifact(self, refused, text):
        assert "is not a valid manifest" in refused(archive_of([("manifest.json", text)]))

    def test_of_a_later_format(self, good, refused):
        assert "Upgrade" in refused(self.changed(good, format=3))

    @pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, None])
    def test_of_a_format_that_does_not_exist(self, good, refused, version):
        assert "an unknown format" in refused(self.changed(good, format=version))

    @pytest.mark.parametrize("size", [0, 10**12, -1, "10", None])
    def test_lies_about_the_size_of_a_file(self, good, refused, size):
        def lie(manifest):
            manifest["files"]["rejector.skops"]["size"] = size

        assert "its manifest gives rejector.skops" in refused(rebuilt(good, members_of(good), lie))

    def test_lies_about_a_digest(self, good, refused):
        def lie(manifest):
            manifest["files"]["rejector.skops"]["sha256"] = "0" * 64

        assert "does not match the digest in its manifest" in refused(rebuilt(good, members_of(good), lie))

    def test_lists_a_file_that_is_not_there(self, good, refused):
        def lie(manifest):
            manifest["files"]["more.npz"] = {"size": 0, "sha256": ""}

        assert "'more.npz'" in refused(rebuilt(good, members_of(good), lie))

    def test_does_not_list_a_file_that_is_there(self, good, refused):
        def lie(manifest):
            del manifest["files"]["calibration-0.npz"]

        assert "'calibration-0.npz'" in refused(rebuilt(good, members_of(good), lie))

    @pytest.mark.parametrize("stated", [[], [{"objects": 10**9}], None, [5], [{"objects": 102}] * 2])
    def test_lies_about_the_number_of_calibration_objects(self, good, refused, stated):
        assert "its manifest" in refused(self.changed(good, calibration=stated))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("rejector", "CPReject"),
            ("classes", [0, 5]),
            ("features", {"count": 3, "names": None}),
            ("thresholds", []),
        ],
    )
    def test_lies_about_the_rejector(self, good, refused, key, value):
        assert f"its manifest has {key}" in refused(self.changed(good, **{key: value}))


class TestTypes:
    def poisoned(self, good, node):
        skops = members_of(good)["rejector.skops"]
        schema = schema_of(skops)
        schema["content"]["content"]["estimator"] = node
        return with_members(good, **{"rejector.skops": with_schema(skops, schema)})

    @pytest.mark.parametrize(
        "loader", ["ObjectNode", "FunctionNode", "TypeNode", "ConstructorFromReduceNode"]
    )
    def test_a_type_nobody_trusts_is_not_even_imported(self, good, refused, tmp_path, monkeypatch, loader):
        (tmp_path / "evil.py").write_text("raise SystemExit('run')\n")
        monkeypatch.syspath_prepend(tmp_path)
        content = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []}
        node = {"__class__": "Evil", "__module__": "evil", "__loader__": loader, "content": content}
        assert "not trusted: evil.Evil" in refused(self.poisoned(good, node))
        assert "evil" not in sys.modules

    @pytest.mark.parametrize("function", [("os", "system"), ("builtins", "eval"), ("subprocess", "Popen")])
    def test_functions_that_run_things(self, good, refused, tmp_path, function):
        argument = {
            "__class__": "str",
            "__module__": "builtins",
            "__loader__": "JsonNode",
            "content": json.dumps(f"touch {tmp_path}/owned"),
        }
        content = {
            "__class__": "tuple",
            "__module__": "builtins",
            "__loader__": "TupleNode",
            "content": [argument],
        }
        node = {
            "__class__": function[1],
            "__module__": function[0],
            "__loader__": "ConstructorFromReduceNode",
            "content": content,
        }
        assert f"not trusted: {'.'.join(function)}" in refused(self.poisoned(good, node))
        assert not (tmp_path / "owned").exists()

    def test_the_file_cannot_widen_what_is_trusted(self, good, refused):
        def lie(manifest):
            manifest["trusted"] = manifest["types"] = ["os.system"]

        node = {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode"}
        poisoned = self.poisoned(good, node)
        assert "os.system" in refused(rebuilt(poisoned, members_of(poisoned), lie))

    def test_other_names_of_this_package_are_not_trusted(self, good, refused):
        node = {
            "__class__": "import_module",
            "__module__": "transcendent._utils.extras",
            "__loader__": "FunctionNode",
        }
        assert "transcendent._utils.extras.import_module" in refused(self.poisoned(good, node))

    def test_trees_have_to_be_trusted_by_name(self, tmp_path):
        path = tmp_path / "forest.transcendent"
        forest = InductiveEvaluator(RandomForestClassifier(3, random_state=0), random_state=0).fit(X, y)
        save(forest, path)
        with pytest.raises(ArtifactError, match=r"trusted=\['sklearn.tree._tree.Tree'\]") as caught:
            load(path)
        assert "crash the process" in str(caught.value)
        assert load(path, trusted=["sklearn.tree._tree.Tree"]).predict(X).shape == (300,)

    def test_trusted_is_no_text(self, good, tmp_path):
        (tmp_path / "good").write_bytes(good)
        with pytest.raises(TypeError, match="list of type names"):
            load(tmp_path / "good", trusted="sklearn.tree._tree.Tree")

    @pytest.mark.parametrize("schema", [{}, [], {"protocol": 3}, {"protocol": 99}, None])
    def test_a_schema_that_is_none(self, good, refused, schema):
        skops = members_of(good)["rejector.skops"]
        assert "cannot be read" in refused(
            with_members(good, **{"rejector.skops": with_schema(skops, schema)})
        )

    def test_a_schema_too_deep(self, good, refused):
        text = '{"protocol": 3, "content": ' + "[" * 50_000
        buffer = io.BytesIO()
        with ZipFile(buffer, "w") as archive:
            archive.writestr("schema.json", text)
        assert "cannot be read" in refused(with_members(good, **{"rejector.skops": buffer.getvalue()}))


class TestUnfolding:
    """Small files that would take much memory, or crash compiled code."""

    def json(self, value):
        return {
            "__class__": "str",
            "__module__": "builtins",
            "__loader__": "JsonNode",
            "content": json.dumps(value),
        }

    def list(self, items, **more):
        return {
            "__class__": "list",
            "__module__": "builtins",
            "__loader__": "ListNode",
            "content": items,
            **more,
        }

    def array(self, name, kind="ndarray", **more):
        node = {"__class__": kind, "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy"}
        return node | {"file": name, **more}

    def crafted(self, good, node, files=None):
        """Return the artifact with a node for a parameter, and more files in its skops entry."""
        skops = members_of(good)["rejector.skops"]
        schema = schema_of(skops)
        schema["content"]["content"]["measure"] = node
        buffer = io.BytesIO(with_schema(skops, schema))
        with ZipFile(buffer, "a", ZIP_DEFLATED) as archive:
            for name, content in (files or {}).items():
                archive.writestr(name, content)
        return with_members(good, **{"rejector.skops": buffer.getvalue()})

    def npy(self, array):
        buffer = io.BytesIO()
        np.save(buffer, array)
        return buffer.getvalue()

    def test_one_array_under_many_nodes(self, good, refused):
        node = self.list([self.array("a.npy") for _ in range(100)])
        assert "zip bomb" in refused(self.crafted(good, node, {"a.npy": self.npy(np.zeros(1_000_000))}))

    @pytest.mark.parametrize("names", [("a.npy", "b.npy"), ("b.npy", "a.npy")])
    def test_two_arrays_under_one_identifier(self, good, refused, names):
        pairs = [self.array(name, __id__=10**6 + i) for i in range(100) for name in names]
        files = {"a.npy": self.npy(np.zeros(1_000_000)), "b.npy": self.npy(np.zeros(1))}
        assert "zip bomb" in refused(self.crafted(good, self.list(pairs), files))

    def test_lists_of_the_same_list(self, good, refused):
        node = self.list([self.json(1)], __id__=10**6)
        for level in range(40):
            again = {
                "__class__": "list",
                "__module__": "builtins",
                "__loader__": "ListNode",
                "__id__": 10**6 + level,
            }
            node = self.list([node, again], __id__=10**6 + level + 1)
        assert "zip bomb" in refused(self.crafted(good, node))

    def test_an_array_of_arrays(self, good, refused):
        shape = {
            "__class__": "tuple",
            "__module__": "builtins",
            "__loader__": "TupleNode",
            "content": [self.json(2), self.json(2)],
        }
        node = self.array("", type="json", content=[self.array("a.npy")] * 3, shape=shape)
        del node["file"]
        assert "array of arrays" in refused(self.crafted(good, node, {"a.npy": self.npy(np.zeros(10))}))

    def test_an_array_of_nothing(self, good, refused):
        header = (
            self.npy(np.zeros(3, dtype="V1"))
            .replace(b"'|V1'", b"'|V0'")
            .replace(b"(3,), }         ", b"(999999999999,),}")
        )
        assert "zip bomb" in refused(self.crafted(good, self.array("a.npy"), {"a.npy": header}))

    @pytest.mark.parametrize("kind", ["void", "bytes_"])
    def test_bytes_made_of_a_number(self, good, refused, kind):
        files = {"a.npy": self.npy(np.array(2_000_000_000))}
        assert f"numpy.{kind}" in refused(self.crafted(good, self.array("a.npy", kind), files))

    def test_a_file_under_another_ending(self, good, refused):
        node = {
            "__class__": "spmatrix",
            "__module__": "scipy.sparse._matrix",
            "__loader__": "SparseMatrixNode",
        }
        node |= {"type": "scipy", "file": "m.dat"}
        assert "as another type of file" in refused(self.crafted(good, node, {"m.dat": b"x"}))

    def test_a_matrix_with_indices_outside_of_it(self, good, refused):
        matrix = sp.csr_matrix(np.eye(3))
        matrix.indices[0] = 2**30
        buffer = io.BytesIO()
        sp.save_npz(buffer, matrix)
        node = {
            "__class__": "spmatrix",
            "__module__": "scipy.sparse._matrix",
            "__loader__": "SparseMatrixNode",
        }
        node |= {"type": "scipy", "file": "m.npz"}
        assert "indices" in refused(self.crafted(good, node, {"m.npz": buffer.getvalue()}))

    def test_kernel_machines_have_to_be_trusted(self, tmp_path):
        save(InductiveEvaluator(SVC(), random_state=0).fit(X, y), tmp_path / "svc")
        with pytest.raises(ArtifactError, match=r"sklearn\.svm\._classes\.SVC"):
            load(tmp_path / "svc")
        assert load(tmp_path / "svc", trusted=["sklearn.svm._classes.SVC"]).predict(X).shape == (300,)

    def test_a_booster_by_another_name(self, tmp_path, refused):
        boosted = InductiveEvaluator(XGBClassifier(n_estimators=2), random_state=0).fit(X, y)
        save(boosted, tmp_path / "x")
        members = members_of((tmp_path / "x").read_bytes())
        (name,) = (name for name in members if name.startswith("booster"))
        for other in ("payload.bin", "calibration-9.npz", "rejector.skops"):
            skops = members["rejector.skops"]
            schema = json.loads(json.dumps(schema_of(skops)).replace(name, other))
            changed = {other: members[name], **members, "rejector.skops": with_schema(skops, schema)}
            del changed[name]
            assert refused(rebuilt((tmp_path / "x").read_bytes(), changed))

    def test_what_is_no_rejector(self, good, refused, tmp_path):
        import skops.io

        detector = skops.io.dumps(LinearSVC().fit(X, y))
        reason = refused(with_members(good, **{"rejector.skops": detector}))
        assert "holds a LinearSVC, which is not a rejector" in reason
        with pytest.raises(TypeError, match="wrap a detector"):
            save(LinearSVC().fit(X, y), tmp_path / "x")

    @pytest.mark.parametrize(
        "key", ["notes", "description", "features", "thresholds", "calibration", "versions"]
    )
    @pytest.mark.parametrize("value", [None, 5, [1], {"a": 1}, "text"])
    def test_manifests_of_another_shape(self, good, refused, key, value):
        def change(manifest):
            if manifest[key] == value or type(manifest[key]) is type(value) is dict:
                manifest.pop(key)
            else:
                manifest[key] = value

        if not (key == "description" and value == "text"):
            assert "manifest" in refused(rebuilt(good, members_of(good), change))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("credibility", [0.1]),
            ("value", "x"),
            ("objective", 5),
            ("certified", None),
            ("rejection_rate", []),
        ],
    )
    def test_thresholds_of_another_shape(self, good, refused, key, value):
        def change(manifest):
            manifest["thresholds"][0][key] = value

        assert "manifest" in refused(rebuilt(good, members_of(good), change))


class TestWriting:
    def test_a_link_laid_in_the_way_is_not_followed(self, tmp_path):
        victim = tmp_path / "victim"
        victim.write_text("mine")
        (tmp_path / "out").symlink_to(victim)
        with pytest.raises(OSError, match="it is a link, so it is not replaced"):
            save(InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y), tmp_path / "out")
        assert victim.read_text() == "mine"
        assert (tmp_path / "out").is_symlink()

    def test_permissions_stay(self, tmp_path):
        path = tmp_path / "private"
        path.touch(mode=0o600)
        save(InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y), path)
        assert path.stat().st_mode & 0o777 == 0o600

    def test_many_at_once(self, tmp_path):
        contents = [bytes([i]) * 10_000 for i in range(30)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda content: write_whole(tmp_path / "x", content), contents))
        assert (tmp_path / "x").read_bytes() in contents
        assert [path.name for path in tmp_path.iterdir()] == ["x"]


class TestWhatCannotBeSaved:
    def test_an_unfitted_rejector(self, tmp_path):
        with pytest.raises(NotFittedError):
            save(InductiveEvaluator(LinearSVC()), tmp_path / "x")

    def test_a_lambda(self, tmp_path):
        ice = InductiveEvaluator(LogisticRegression(), measure=lambda e, rows: -e.predict_proba(rows))
        with pytest.raises(ArtifactError, match="not a lambda"):
            save(ice.fit(X, y), tmp_path / "x")
        assert not list(tmp_path.iterdir())

    def test_something_of_a_script(self, tmp_path):
        def doubt(estimator, rows):
            return -estimator.predict_proba(rows)

        doubt.__module__ = "__main__"
        with pytest.raises(ArtifactError, match="notebook or script"):
            save(InductiveEvaluator(LogisticRegression(), measure=doubt).fit(X, y), tmp_path / "x")

    def test_a_method_of_an_object(self, tmp_path):
        measure = InductiveEvaluator(LinearSVC()).__init__
        ice = InductiveEvaluator(LogisticRegression(), measure=Probability()).fit(X, y)
        ice.note = measure
        with pytest.raises(ArtifactError, match="cannot be saved"):
            save(ice, tmp_path / "x")

    def test_something_that_lives_in_this_process_only(self, tmp_path):
        ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, y)
        ice.estimator_.lock = threading.Lock()
        with pytest.raises(ArtifactError, match="cannot be saved: it holds a value that cannot be copied"):
            save(ice, tmp_path / "x")

    def test_a_key_that_is_true_or_false(self, tmp_path):
        svm = LinearSVC(class_weight={False: 1, True: 5})
        with pytest.raises(ArtifactError, match="True or False as a key"):
            save(InductiveEvaluator(svm, random_state=0).fit(X, y == 1), tmp_path / "x")

    def test_a_fit_without_thresholds(self, tmp_path):
        impossible = ExactSearch("f1", constraints=F1() >= 1.0, max_rejection=0.0)
        ice = InductiveEvaluator(LinearSVC(), search=impossible, random_state=0)
        with pytest.raises(InfeasibleError):
            ice.fit(X[:, :2], y)
        with pytest.raises(ArtifactError, match="rethreshold"):
            save(ice, tmp_path / "x")
        ice.rethreshold("auto")
        with pytest.raises(InfeasibleError):
            ice.rethreshold(impossible)
        save(ice, tmp_path / "x")
        assert (
            load(tmp_path / "x").decide(X[:, :2]).accepted.tolist() == ice.decide(X[:, :2]).accepted.tolist()
        )
