"""Words of tasks, of politeness and of any program, in languages other than English: alone they name
no subject. They also tell that a text is not in English.

A word stands for all that begin with its first `MIN_START` letters. What is written without blanks
is compared by groups of two characters.
"""

from __future__ import annotations

from functools import cache

from ouro.memory.index.stems import find_stems
from ouro.memory.index.words import MIN_START, words_in

_WORDS = {
    "German": """
        abend ändere ändern anders anfang antwort beispiel benenne bitte code danke datei dateien dank diff doku ende
        entferne erkläre erklären ersetze erst fehler fertig frage füge funktion funktionen ganze gerade gern gut
        guten hallo hilf hinzu jetzt kaputt klasse korrigiere lass lege leg liste lies lösche los mach mache machen
        methode modul morgen nacht nächste name neu neue neuen neuer nochmal okay passt perfekt problem programm
        projekt prüfe repo rückgängig schau schleife schreib schreibe skript super tabelle tag teile teil test tests
        text tschüss überprüfe variable verschiebe warte weiter wert wieder wort zeig zeige zeile zuerst zwei
        """,
    "French": """
        aide ajoute ajouter appelle après arrête avant beaucoup bien bonjour bonne bonsoir bon boucle change
        changement classe code commence comprends continue copie corrige crée créer demain dernière dernier désolé
        deux déplace diff dis donne encore erreur essaie explique explication faire fais faut faute fichier fichiers
        fin fonction fonctions fois journée lance ligne lis liste merci méthode mets mieux module montre nom nouveau
        nouvelle oui parfait petit peux plus problème programme projet propose question nuit regarde remplace renomme
        réponse sais salut simple soir soirée super supprime sûr test tests texte toujours tout trouve valeur
        variable vas vérifie veux vois
        """,
    "Spanish": """
        adelante agrega ahora añade añadir antes archivo archivos arregla ayuda bien borra bueno buenos buenas busca
        cadena cambia cambio clase código comprueba continúa corrige crea crear dame después día días diff dime dos
        divide ejemplo ejecuta elimina error errores escribe escribir explica explícame favor fichero función
        funciones gracias haz hazlo hecho hola lee línea lista listo luego mañana método mira módulo mueve muestra
        mucho muchas muy necesito nombre noches noche nuevo nueva otra otro palabra parte pasa perdón perdona
        perfecto podemos problema programa proyecto prueba pruebas puedes quiero quita reemplaza renombra respuesta
        revisa siguiente sigue sí tardes test tests texto todo todos última último usa vale valor variable ver vez
        """,
    "Portuguese": """
        adicione agora ajuda ajude arquivo arquivos bem boa bom certo classe código coloque começa continue corrija
        crie criar depois dia diff dois duas divida encontre erro erros escreva exemplo execute explique faça favor
        fim função funções hoje leia linha lista manhã amanhã noite método mostre módulo mova mude mudança nome nova
        novo obrigada obrigado olá ótimo outra outro palavra parte perfeito pode problema programa projeto quero
        remova renomeie resposta rode seguinte substitua tarde teste testes texto todo todos tudo último valor
        variável veja vez vamos
        """,
    "Italian": """
        aggiungi aiuta aiuto arrivederci ancora bene buona buongiorno buono cambia cambio cerca ciao classe codice
        continua controlla correggi crea creare dimmi divide dividi dopo due elimina errore errori esegui esempio fai
        fammi favore file fine funzione funzioni funziona giorno grazie guarda leggi lista metodo metti modifica
        modulo mostra mostrami domani notte nome nuova nuovo oggi ora ottimo parola parte perfetto poi prego problema
        programma progetto prossimo prova puoi riga rimuovi rinomina riscrivi risposta scrivi sempre sostituisci
        sposta spiega spiegami stringa test testo trova tutto ultima ultimo usa valore variabile vedi voglio
        """,
    "Polish": """
        błąd błędy chcę czekaj cześć dalej diff dwa dwie dobra dobry dobrze dodaj dodać dzięki dziękuję dzień
        fragment funkcja funkcję funkcji gotowe jasne kasuj klasa kod kodu linia lista metoda jutro miłego moduł noc
        możesz nazwa nazwę napisz napraw nowa nowe nowy odpowiedź okej opcja plik pliki pliku podziel pokaż pomoc
        popraw proszę problem program projekt przenieś przepraszam przykład robi sprawdź super świetnie tekst test
        testy tłumacz usuń utwórz wartość wszystko wyjaśnij wynik zacznij zamień zmień zmienna zmiennej znajdź zrób
        """,
    "Turkish": """
        açıkla anlat bak bekle böl çalıştır değer değişken değiştir devam dosya dosyayı düzelt ekle evet fonksiyon
        fonksiyonu göster gece günaydın güzel harika hata hatayı iki isim istiyorum iyi kaldır kod kodu kolay kontrol
        kullan liste lütfen merhaba metin metot modül oku oluştur örnek parça proje program satır selam sınıf sil
        sonuç sorun tamam taşı tekrar test testi teşekkür yap yaz yeni yeniden
        """,
    "Russian": """
        больше верни давай далее дай два две день добавь добрый добрая доброе другой ещё запусти замени значение имя
        исправь класс код кода конец метод модуль напиши найди нового новая новое новый нужно объясни ок отлично
        ошибка ошибки ошибку пакет переименуй перенеси пожалуйста покажи помоги поправь пример привет проблема
        проверь программа проект продолжай прочитай раз раздели сделай создай спасибо список строка строки строку
        текст тест тесты убери удали файл файла файлы функции функция функцию хорошо хочу
        """,
    "Hindi": """
        अच्छा आज आगे आप उदाहरण करना करें करो कीजिए कृपया कोड गलती गलतियाँ चलाओ चलाएँ चलता जल्दी जाँच जारी जोड़ो
        जोड़ें टेस्ट ठीक त्रुटि दिखाओ दिखाएँ देखो धन्यवाद नमस्ते नया नई नए नाम पढ़ो प्रोग्राम फ़ाइल फंक्शन फ़ंक्शन
        बढ़िया बताओ बदलो बनाओ बनाएँ भाग मदद मान मॉड्यूल रखो लगाओ लिखो लिखें लूप वाक्य शब्द शुक्रिया समझाओ समस्या सही
        सूची हटाओ हटाएँ हाँ
        """,
    "Chinese": """
        你好 谢谢 继续 没问题 请问 帮我 函数 代码 变量 文件 报错 错误 修改 修复 删除 添加 增加 解释 意思 重命名 名字
        测试 循环 列表 一下 这段 写一 改成 改短 作用 运行 项目 问题 方法 看看 检查
        """,
    "Japanese": """
        関数 変数 名前 変更 直前 取り消し 追加 削除 修正 説明 意味 続け 今日 明日 大丈夫 処理 書い 確認 実行 教え
        分け 問題 方法 コード ファイル エラー テスト クラス メソッド リスト プログラム プロジェクト
        """,
}
_ALSO_ENGLISH = frozenset(
    """
    antes change classe code continue copie dame demain diff divide encore error execute favor file fin fine
    fragment gern kod lance lass lee leg liste los mach modul module name nom nova okay oku plus problem
    program projekt propose question repo rode simple super tag tarde test testo tests text texto todo
    variable vas
    """.split()
)
"""Words of these that are English words or names, too: they tell nothing of the language."""


@cache
def foreign_words() -> frozenset[str]:
    """The words that show that a text is not in English."""
    return frozenset(" ".join(_WORDS.values()).split()) - _ALSO_ENGLISH


@cache
def _starts() -> frozenset[str]:
    """The starts of the stems of all these words. Made once, at the first message in such a language."""
    return frozenset(stem[:MIN_START] for stem in find_stems(words_in(" ".join(_WORDS.values()))))


def is_foreign_task_word(stem: str) -> bool:
    """Whether the word with this stem names no subject."""
    return stem[:MIN_START] in _starts()
