"""X12: files in old encodings stay as they are outside of an edit, and a guess is named."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.edit import Edit, EditArgs, Replacement
from ouro.tools.files_seen import FilesSeen
from ouro.tools.read import Read, ReadArgs
from ouro.utils.declared_text import declared_newline
from ouro.utils.text_encoding import list_declared_encodings
from ouro.utils.text_files import NotTextError, decode_text, find_ambiguous_char

SAMPLES = (
    (
        "cp1252",
        "// Crée la réservation à l'hôtel, vérifie l'état et déclenche l'opération différée après événement",
    ),
    (
        "cp1252",
        "// Função de validação: não permite a inclusão de usuários sem permissão, ações já concluídas",
    ),
    (
        "cp1252",
        "// Lägg till en ny användare för att köra över påföljande år, då åtgärden är färdig",
    ),
    ("cp1252", "Größe der Prüfsumme für die Übertragung ändern"),
    ("cp1252", "El año pasado la función envió más información según el diseño"),
    ("cp1252", "Perché la città è più grande, così però non può"),
    ("cp1252", "Brugeren må ikke ændre størrelsen på det første område"),
    ("cp1252", "Käyttäjä syöttää päivämäärän ja määrän järjestelmään"),
    ("iso8859-15", "Prix de l'œuvre: 20 € à l'entrée du musée, été compris"),
    ("cp1252", "# café"),
    ("cp1250", "Zażółć gęślą jaźń, a potem zapisz plik i wyślij wiadomość"),
    ("iso8859-2", "Zażółć gęślą jaźń, a potem zapisz plik i wyślij wiadomość"),
    ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy, uživatel není přihlášen"),
    ("cp1250", "Árvíztűrő tükörfúrógép, a felhasználó nevét kötelező megadni"),
    ("iso8859-2", "Příliš žluťoučký kůň úpěl ďábelské ódy, uživatel není přihlášen"),
    ("cp1250", "Korisnik može promijeniti šifru i obrisati račun, češće"),
    ("cp1251", "Пользователь не может изменить размер файла"),
    ("koi8-r", "Пользователь не может изменить размер файла"),
    ("cp866", "Пользователь не может изменить размер файла"),
    ("iso8859-5", "Пользователь не может изменить размер файла"),
    ("cp1251", "Користувач не може змінити розмір файлу, її значення є"),
    ("cp1251", "Потребителят не може да промени размера на файла"),
    ("cp1253", "Ο χρήστης δεν μπορεί να αλλάξει το μέγεθος του αρχείου"),
    ("iso8859-7", "Ο χρήστης δεν μπορεί να αλλάξει το μέγεθος του αρχείου"),
    ("cp1254", "Kullanıcı dosyanın boyutunu değiştiremez, çünkü işlem başarısız oldu"),
    ("cp932", "ユーザーはファイルのサイズを変更できません。設定を確認してください"),
    ("euc_jp", "ユーザーはファイルのサイズを変更できません。設定を確認してください"),
    ("gb18030", "用户不能更改文件的大小，请检查设置"),
    ("cp950", "使用者不能變更檔案的大小，請檢查設定"),
    ("cp949", "사용자는 파일의 크기를 변경할 수 없습니다. 설정을 확인하세요"),
    ("gb18030", "返回当前目录下的所有文件"),
    ("cp932", "// 初期化処理"),
    ("cp949", "// 초기화 함수"),
    ("gb18030", "// 初始化函数"),
    ("cp1252", "Instellingen zijn geïnitialiseerd; de coördinaten van één gebruiker"),
    ("cp1252", "És a dir, això només és per a la configuració del català"),
    ("cp1250", "Používateľ nemôže zmeniť veľkosť súboru, pretože došlo k chybe"),
    ("iso8859-2", "Zmień rozmiar pliku i sprawdź, czy użytkownik może go usunąć"),
    ("cp1254", "Şifre yanlış, lütfen yeniden giriş yapın ve ayarları güncelleyin"),
    ("cp1251", "// Проверить, что файл существует, и вернуть его размер"),
    (
        "cp1257",
        "Vartotojas negali pakeisti failo dydžio, nes įvyko klaida ir šis įrašas užrakintas",
    ),
    ("cp1257", "Lietotājs nevar mainīt faila izmēru, jo radās kļūda un šis ieraksts ir bloķēts"),
    ("cp1257", "Õpetaja küsib, kas šokolaad on külmkapis ja kas žürii võib õhtul süüa"),
    ("iso8859-13", "Lietotājs nevar mainīt faila izmēru, jo radās kļūda"),
)
SHORT = (
    ("cp1257", "// įrašyti"),
    ("cp1257", "# šešėlis"),
    ("cp1257", "ģimene"),
    ("cp1257", "kāpēc šī"),
    ("cp1257", "Ąžuolas žalias"),
    ("cp1250", "żółć"),
    ("iso8859-2", "šiška"),
    ("cp1252", "œuvre é"),
)


def _tools(folder):
    seen = FilesSeen(Workspace(folder))
    return Read(seen), Edit(seen)


def _edit(edit, path, old, new):
    return edit._change(EditArgs(str(path), [Replacement(old, new)]), "write", [])


@pytest.mark.parametrize(("encoding", "text"), SAMPLES)
def test_x12_sample_is_read_right_and_changes_only_where_it_is_edited(tmp_path, encoding, text):
    path, whole = tmp_path / "a.txt", f"{text}\nx=1;\n{text}\n"
    path.write_bytes(whole.encode(encoding))
    read, edit = _tools(tmp_path)

    shown = read.read_now(ReadArgs(str(path))).text
    _edit(edit, path, "x=1;", "x=2;")

    assert text in shown
    assert "(a guess)" in shown
    assert path.read_bytes() == whole.replace("x=1;", "x=2;").encode(encoding)


@pytest.mark.parametrize(("encoding", "text"), [*SAMPLES, *SHORT])
def test_x12_new_text_is_never_written_in_another_encoding(encoding, text):
    """A file that has only the first words of a text gets each other word: right, or not at all."""
    words = text.split(" ")
    for count in range(1, len(words) + 1):
        data = f"{' '.join(words[:count])}\n".encode(encoding)
        try:
            before = decode_text(data)
        except NotTextError:
            continue
        assert before.encode() == data
        for word in words:
            after = before.with_text(f"{before.text}{word}\n")
            if data.isascii() or word.isascii() or find_ambiguous_char(before, after):
                continue
            with suppress(UnicodeEncodeError):
                assert after.encode() == data + f"{word}\n".encode(encoding)


def test_x12_encoding_can_be_named_in_the_edit(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("x = 1  # \u0161e\n".encode("cp1257"))
    read, edit = _tools(tmp_path)
    read.read_now(ReadArgs(str(path)))
    replacement = Replacement("x = 1", "\u017eodis = 1")

    edit._change(EditArgs(str(path), [replacement], "cp1257"), "write", [])

    assert path.read_bytes() == "\u017eodis = 1  # \u0161e\n".encode("cp1257")
    with pytest.raises(ToolError, match="is not an encoding"):
        edit._change(EditArgs(str(path), [Replacement("1", "2")], "klingon"), "write", [])


def test_x12_new_text_that_the_guess_does_not_cover_is_asked(tmp_path):
    path = tmp_path / "a.txt"
    before = "x = 1  # caf\u00e9\n".encode("cp1252")
    path.write_bytes(before)
    read, edit = _tools(tmp_path)
    read.read_now(ReadArgs(str(path)))

    with pytest.raises(ToolError, match=r"a guess.*fits as well"):
        _edit(edit, path, "x = 1", "n\u00e3o = 1")
    assert path.read_bytes() == before

    assert "[Read as cp1252.]" in read.read_now(ReadArgs(str(path), encoding="latin1")).text
    _edit(edit, path, "x = 1", "n\u00e3o = 1")
    assert path.read_bytes() == "n\u00e3o = 1  # caf\u00e9\n".encode("latin-1")


def test_x12_declared_encoding_counts_before_a_guess(tmp_path):
    (tmp_path / ".editorconfig").write_text("root = true\n[*.{txt,md}]\ncharset = latin1\n")
    path = tmp_path / "a.txt"

    assert list_declared_encodings(path, b"x") == ["cp1252"]
    assert list_declared_encodings(tmp_path / "a.c", b"x") == []
    assert list_declared_encodings(tmp_path / "a.py", b"#!/bin/x\n# -*- coding: koi8-r -*-\n") == [
        "koi8-r"
    ]
    assert list_declared_encodings(
        tmp_path / "a.x", b'<?xml version="1.0" encoding="ISO-8859-2"?>'
    ) == ["iso8859-2"]
    assert list_declared_encodings(tmp_path / "a.h", b"<html>\n<meta charset=windows-1251>") == [
        "cp1251"
    ]


def test_x12_a_pattern_with_many_choices_takes_no_time(tmp_path):
    (tmp_path / ".editorconfig").write_text(
        f"[*{'{a,b}' * 24}.c]\nend_of_line = crlf\n[*.{{h,c}}]\nend_of_line = lf\n"
    )
    start = time.process_time()
    assert declared_newline(tmp_path / "x.c") == "\n"
    assert time.process_time() - start < 1
