from ouro.memory.backend import MessageRecord
from ouro.memory.tokens import estimate, estimate_messages
from ouro.memory.transcript import Transcript
from ouro.messages import Image, Message, Text, ToolCall, Usage, assistant, user


def count(messages):
    transcript = Transcript()
    for number, message in enumerate(messages, 1):
        transcript.add_record(MessageRecord(number, "", message))
    return transcript.count_tokens(0)


def test_a_text_is_counted_by_its_characters():
    assert estimate("x" * 35) == 10


def test_pictures_and_arguments_count_too():
    messages = [
        user("", [Image("image/png", b"")]),
        assistant("", ToolCall("1", "read", {"path": "x" * 335})),
    ]

    assert estimate_messages(messages) == 1500 + 100


def test_provider_figure_is_used_and_only_newer_messages_estimated():
    answer = Message("assistant", (Text("x" * 9999),), Usage(input=1000, output=50))

    assert count([user("x" * 700), answer, user("x" * 350)]) == 1150


def test_without_a_figure_all_is_estimated():
    assert count([user("x" * 700), assistant("x" * 350)]) == 300


def test_usage_of_a_one_file_request_is_not_the_context_size():
    answer = Message("assistant", (Text("x" * 9999),), Usage(input=1000, output=50))
    step = Message(
        "assistant",
        (ToolCall("changed_1", "edit", {"path": "x" * 335}),),
        Usage(input=108, output=28),
    )

    assert count([answer, step]) == 1150
