"""The options of bots and workers with the Celery engine: what is refused, and where the broker comes from."""

from pathlib import Path

from tests.cli.program import PLAIN_ENV, taskyard

TOKEN = {**PLAIN_ENV, "TASKYARD_TOKEN": "ty_bot_x", "TASKYARD_URL": "http://127.0.0.1:9"}


def test_a_password_in_the_options_is_refused_and_not_repeated(tmp_path: Path) -> None:
    for command in (("bot", "--engine", "celery", "--state", str(tmp_path)), ("celery-worker",)):
        done = taskyard(*command, "--broker", "amqp://user:hidden@broker/", env=TOKEN)
        assert done.returncode == 2
        assert "use --broker-file PATH" in done.stderr
        assert "hidden" not in done.stderr


def test_a_missing_or_unknown_broker_or_engine_is_one_clear_error(tmp_path: Path) -> None:
    bot = ("bot", "--state", str(tmp_path / "state"))
    file = tmp_path / "broker"
    file.write_text("http://user:hidden@broker/\n")
    cases = {
        ("celery-worker",): "there is no broker: set TASKYARD_BROKER",
        ("celery-worker", "--broker-file", str(tmp_path / "none")): "cannot read the broker from",
        ("celery-worker", "--broker-file", str(file)): "the broker must be amqp://... (RabbitMQ) or redis://...",
        (*bot, "--engine", "celery"): "the engine celery needs a broker",
        (*bot, "--engine", "celery", "--broker-file", str(file)): "the broker must be amqp://",
        (*bot, "--engine", "celery", "--broker", "redis://h/0", "--engine-option", "x=1"): "no option 'x'",
        (*bot, "--engine", "none"): "there is no engine 'none'; installed are celery, local",
        (*bot, "--queue", "builds"): "need --engine celery",
    }
    for command, why in cases.items():
        done = taskyard(*command, env=TOKEN)
        assert done.returncode in (1, 2), command
        assert why in done.stderr, (command, done.stderr)
        assert "hidden" not in done.stderr
        assert "Traceback" not in done.stderr
