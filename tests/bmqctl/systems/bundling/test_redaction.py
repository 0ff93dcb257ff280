"""Secrets are struck out by their names, their forms and their values, and what is no secret stays."""

from __future__ import annotations

import json
import time

import pytest

from bmqctl.systems.bundling.redaction import LINE_CHARS_MAX, REDACTED, Redaction, has_private_key
from tests.rigs.machine_speed import slowness

SECRET = "p1anted-S3cret"


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f"tls.server.keyPassword = {SECRET}",
        f"rocketmq.secretKey: {SECRET} # the one",
        f'{{"user": "ann", "Passwd": "{SECRET}"}}',
        f'sent {{\\"password\\":\\"{SECRET}\\"}} to the peer',
        f"Authorization: Basic {SECRET}",
        f"got header Bearer {SECRET}",
        f"dialing tcp://ann:{SECRET}@10.0.0.5:30114",
        f"AUTHN_DATA='ann:{SECRET}' apiKey={SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\\n{SECRET}\\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_secret_in_a_line(text: str) -> None:
    found = Redaction().text(text)
    assert SECRET not in found
    assert REDACTED in found


# Values that are at once what a word looks like and what it does not: a secret may be either.
VALUES = ("p1anted-S3cret", "correcthorse")
SPELLINGS_OF_LOGS = (
    "pass=X",
    "pin=X",
    "bindpw=X",
    "encKey: X",
    "basicAuth=X",
    "privkey=X",
    "license_key -> X",
    "session_id=X",
    "unlock_code: X",
    "kennwort: X",
    "contraseña=X",
    "GET /p?password%3DX&b=1",
    "the password for ann: X",
    'got "password" : [ "X" ]',
    "curl -u ann:X http://there",
    "curl --user 'ann:X' http://there",
    "pwd: X",
    "dbpass=X",
    "db_pass = X",
    "DB_PWD=X",
    "dbPwd=X",
    "mysqlpwd=X",
    "rocketmqSk=X",
    "remoteSK: X",
    "sk=X",
    "aliyun.sk = X",
    "ROCKETMQ_SK=X",
    "password is X",
    "the password was 'X'",
    "password 'X' was refused",
    'secretkey "X"',
    'secretKey "X" of ann',
    "secret -> X",
    "token => X",
    "password := X",
    "passwd=X,user=ann",
    "{password=X, user=ann}",
    "Login(user=ann, passphrase=X)",
    "psk=X",
    "otp: X",
    "creds=ann:X",
    "requirepass X1",
    "masterauth=X",
    '"auth": "X"',
    "jwt=X",
    "accountKey=X;endpoint=y",
    "encryption_key: X",
    "storePassword=X",
    "keypass=X",
    "ssl.truststore.pwd=X",
    "config['password'] = 'X'",
    '{\\"dbPass\\":\\"X\\"}',
    '"key": "dbPassword", "value": "X"',
    '<property name="password" value="X"/>',
    "<password>X</password>",
    "curl --password X http://a",
    "run -pass X now",
    "tool --secret-key X",
    "password = two,X",
    "password=a}X",
    "IDENTIFIED password by 'X'",
    "GET /x?access_token=X&y=1",
    "GET /blob?sv=1&sig=X",
    "amqp://ann:X@host/v",
    "https://X@github.com/a",
    "redis://:X@host",
    "amqp://ann:a@X@host/v",
    "Authorization: Negotiate X",
    "Authorization: AWS4-HMAC-SHA256 Credential=a, Signature=X",
    '"Proxy-Authorization": "Custom X"',
    "Cookie: a=b; session=X",
    "Set-Cookie: sid=X; HttpOnly",
    "My-Auth-Token: X",
    "got header bearer X-and-more",
    "-----BEGIN OPENSSH PRIVATE KEY-----\\nX\\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----X-----END PGP PRIVATE KEY BLOCK-----",
)
SPELLINGS_OF_FILES = (
    '{"pass": "X"}',
    '{"db": {"pwd": "X", "port": 1}}',
    '{"remoteSk": ["X"]}',
    '{"name": "db_pass", "value": {"text": "X"}}',
    '{"kty": "oct", "k": "X"}',
    '{"note": "the password is X"}',
    '{"pem": "-----BEGIN EC PRIVATE KEY-----\\nX\\n-----END EC PRIVATE KEY-----"}',
    "pass X\n",
    "requirepass X\n",
    "db.pwd=X and more\n",
    "dbPass: X\n",
    "innerClientSk = X\n",
    "env:\n- name: DB_PASSWORD\n  value: X\n",
    "env:\n  - name: DB_PWD\n    value: |\n      X\n",
    "pwd:\n  - X\n",
    "jdbc.url=jdbc:mysql://ann:X@host/db\n",
    "jdbc.url=jdbc:mysql://host/db?user=ann&password=X\n",
    "# the old pwd was X\n",
)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("text", SPELLINGS_OF_LOGS)
def test_spellings_of_secrets_in_logs(text: str, value: str) -> None:
    (found,) = Redaction().log([text.replace("X", value)])
    assert value not in found
    assert REDACTED in found


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("text", SPELLINGS_OF_FILES)
def test_spellings_of_secrets_in_configurations(text: str, value: str) -> None:
    redaction = Redaction()
    found = redaction.configuration(text.replace("X", value))
    assert value not in found
    assert REDACTED in found


@pytest.mark.parametrize(
    "text",
    [
        "queue bmq://my.domain/orders opened, queueKey 0123456789, key=ABC",
        "node 1 is leader of term 5: at tcp://10.0.0.5:30114",
        "2026-11-24T03:00:00Z INFO basic checks done",
        "task=5, disk: 80 %, mask=0xff, bypass=1, passive=true, compass: north, desk=3, authentic=1, signal=9",
        "keys=3, monkey=1, hotkeys: 7, passed: 12, spwd-less, consumer group pass-through",
        "the token of ann; no password needed; secrets of others",
        "mechanism of authentication: BASIC, opened at 10:00 by ann",
    ],
)
def test_text_without_secrets_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_a_configuration_of_blazingmq() -> None:
    config = {
        "authentication": {
            "authenticators": [{"name": "Basic", "settings": [{"key": "ann", "value": {"stringVal": SECRET}}]}],
            "anonymousCredential": {"credential": {"mechanism": "BASIC", "identity": "guest:0ther-S3cret"}},
        },
        "plugins": [{"key": "dbPassword", "value": SECRET}, {"key": "colour", "value": "green"}],
        "port": 30114,
        "isPasswordNeeded": True,
    }
    redaction = Redaction()
    found = redaction.configuration(json.dumps(config))
    assert SECRET not in found
    assert "S3cret" not in found
    shown = json.loads(found)
    assert shown["plugins"][1] == {"key": "colour", "value": "green"}
    assert (shown["port"], shown["isPasswordNeeded"]) == (30114, True)
    # From now on they are known, whatever stands before them; of an identity also the password alone.
    assert (
        redaction.text(f"took {SECRET} and 0ther-S3cret for an answer")
        == f"took {REDACTED} and {REDACTED} for an answer"
    )


def test_a_configuration_of_rocketmq() -> None:
    text = (
        "brokerName=orders\n"
        'initAuthenticationUser={"username":"ann","password":"p1anted-S3cret"}\n'
        "tls.server.keyPassword=two words \\\n  more\n"
        "listenPort=10911\n"
    )
    redaction = Redaction()
    found = redaction.configuration(text)
    assert "S3cret" not in found
    assert "words" not in found
    assert "more" not in found
    assert found.splitlines()[0] == "brokerName=orders"
    assert found.splitlines()[-1] == "listenPort=10911"
    assert redaction.text("got two words   more") == f"got {REDACTED}"


def test_a_configuration_in_yaml() -> None:
    text = (
        "accounts:\n- accessKey: ann\n  secretKey: |\n    p1anted-S3cret\n    0ther-S3cret\n  admin: false\n"
        "credentials:\n  - name: bob\n    phrase: third-S3cret\nport: 1\n"
    )
    found = Redaction().configuration(text)
    assert "S3cret" not in found
    assert "  admin: false\n" in found
    assert found.endswith("port: 1\n")


def test_a_key_in_a_log_of_several_lines() -> None:
    lines = ["before\n", "x -----BEGIN PRIVATE KEY-----\n", "MIIEabc\n", "-----END PRIVATE KEY-----\n", "after"]
    assert list(Redaction().log(lines)) == ["before\n", f"x {REDACTED}\n", "after\n"]
    # The log was cut off within a key.
    assert list(Redaction().log([f"{'A' * 64}\n", "after\n"])) == [f"{REDACTED}\n", "after\n"]
    assert has_private_key("".join(lines))
    assert not has_private_key("-----BEGIN CERTIFICATE-----")


def test_a_key_without_an_end_hides_a_bounded_part_of_a_log() -> None:
    lines = ["-----BEGIN PRIVATE KEY-----\n", *("line\n" for _ in range(1_000))]
    assert 0 < len(list(Redaction().log(lines))) < 600


def test_long_lines_take_linear_time() -> None:
    started = time.process_time()
    for text in ("a" * 200_000, "token" * 40_000, "password=" * 20_000, "-----BEGIN PRIVATE KEY-----" * 8_000):
        (shown,) = Redaction().log([text])
        assert len(shown) <= LINE_CHARS_MAX + 1
    assert time.process_time() - started < 5 * slowness()


def test_levels_without_end_are_no_traceback() -> None:
    value: object = "x"
    for _ in range(5_000):
        value = [value]
    with pytest.raises(RecursionError):
        Redaction().value(value)
