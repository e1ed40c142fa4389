"""A fourth list. `PLACED_LATER` and the first ten of `NOT_KEPT_LATER` were written before their author
had read the code, the others after that, but before sentences in doubt were asked about.
"""

from __future__ import annotations

from benchmarks.memory_meaning.values import Message, Pair, Placed

KEPT_LATER = (
    Message(
        "Rebase my branch please. One caution: the schema file is generated, edits get lost.",
        "generated",
        "repo",
    ),
    Message(
        "The invoices for Norway are wrong by a cent. Our rounding rule"
        " is half to even, everywhere.",
        "half to even",
        "repo",
    ),
    Message(
        "I can't read long diffs on my phone, so show me at most twenty lines.",
        "twenty lines",
        "user",
    ),
    Message(
        "For review: Farah looks at everything under infra/, nobody else merges there.",
        "Farah",
        "repo",
    ),
    Message(
        "Kannst du den Import reparieren? Die Lieferanten schicken ihre Daten immer als Latin-1.",
        "Latin-1",
        "repo",
    ),
    Message("Räum die Tests auf. Mocks mag ich nicht, nimm echte Datenbanken.", "Mocks", "user"),
    Message("Zur Info: die Testdatenbank wird jede Nacht um drei geleert.", "drei", "repo"),
    Message("Ich bin kein Webentwickler, erklär mir CSS also von Grund auf.", "CSS", "user"),
    Message(
        "Ajoute le champ. Une chose à savoir : les codes postaux peuvent commencer par zéro.",
        "zéro",
        "repo",
    ),
    Message(
        "Notre client principal est la mairie de Lyon, l'interface doit rester accessible.",
        "Lyon",
        "repo",
    ),
    Message(
        "Quand tu me proposes une solution, donne-moi aussi ses inconvénients.",
        "inconvénients",
        "user",
    ),
    Message("Les migrations passent toujours par Sofia avant la production.", "Sofia", "repo"),
    Message("Sube la versión. Importante: el changelog se escribe en inglés.", "changelog", "repo"),
    Message("No uso ratón, así que dime los atajos de teclado.", "atajos", "user"),
    Message("El almacén manda los pedidos por FTP cada hora; nunca por correo.", "FTP", "repo"),
    Message(
        "Cuidado con el módulo fiscal: lo audita una empresa externa dos veces al año.",
        "audita|fiscal",
        "repo",
    ),
    Message("帮我升级依赖。注意：lodash 必须停在 4.17.20，新版有问题。", "4.17.20", "repo"),
    Message("我是左撇子而且色弱，图表请不要只用颜色区分。", "颜色", "user"),
    Message("我们的客户都在内网，不能访问外部 CDN。", "内网|CDN", "repo"),
    Message("每次改完接口都要通知小李，他负责移动端。", "小李", "repo"),
    Message("テストを直して。補足:外部APIは1分に60回までしか呼べません。", "60回", "repo"),
    Message("専門用語は英語のまま書いてもらえると助かります。", "英語", "user"),
    Message("このシステムの利用者は高齢者が多いので、文字は16px以上にしています。", "16px", "repo"),
    Message("リリースは毎週水曜日、担当は佐藤さんです。", "佐藤", "repo"),
)
NOT_KEPT_LATER = (
    Message("Heute bitte keine Migrationen anfassen, die Datenbank wird gerade umgezogen."),
    Message("Schreib mir eine Mail an das Team: Ab Montag nutzen wir nur noch Postgres 16."),
    Message("Et si on passait tout à Kafka ? Juste une idée, je ne sais pas encore."),
    Message("Pour cette session seulement, saute les tests lents."),
    Message("Mi jefa dijo: «nunca despleguemos los viernes», pero yo no estoy de acuerdo."),
    Message("Redacta un README que diga que el proyecto requiere Node 22."),
    Message("今天先别推送，CI 正在维护。"),
    Message("帮我写一段示例文案：本产品支持所有数据库。"),
    Message("もしRustで書き直したらどうなるかな、と考えているだけです。"),
    Message("今日だけ main に直接コミットしていいよ。"),
    Message("Put this in the release notes: we no longer support Windows 7."),
    Message("Until lunch, don't restart the worker, I'm debugging it."),
    Message("The old handbook had a rule: every function needs a docstring. Silly, no?"),
    Message("A test title could be: users must always confirm their address."),
    Message("Never log tokens... hmm, actually let me think about that first."),
    Message(
        "Pretend that we are a bank and all amounts must be audited. How would the model look?"
    ),
    Message("Mein Chef meint, wir sollten nie wieder PHP anfassen. Was hältst du davon?"),
    Message("Für diese Sitzung reicht mir die kurze Ausgabe."),
    Message("Als Kommentar über die Funktion: Diese Liste ist immer sortiert."),
    Message("Nur heute: pushe direkt auf main."),
    Message("Mets ça dans le courriel : nous livrons toujours avant midi."),
    Message("Aujourd'hui, ne lance pas les tests d'intégration."),
    Message("Selon Paul, il ne faudrait jamais utiliser d'ORM. T'en penses quoi ?"),
    Message("Por hoy no toques el módulo de pagos."),
    Message("Pon en el cartel: aquí siempre usamos HTTPS."),
    Message("Si fuéramos una startup, nunca escribiríamos tests."),
    Message("在邮件里写上：我们从下周起只支持 Chrome。"),
    Message("这次就不用写测试了。"),
    Message("有人说永远不要用 ORM，你怎么看？"),
    Message("メールにこう書いて:弊社は常に暗号化しています。"),
    Message("今回は英語で答えてくれればいいです。"),
    Message("同僚は「コメントは絶対に書くな」と言っていましたが、どう思いますか？"),
)

CORRECTIONS_LATER: tuple[Pair, ...] = ()
BOTH_LATER: tuple[Pair, ...] = ()
PLACED_LATER = (
    Placed("Fass dich bitte kürzer, drei Sätze reichen mir völlig.", "user"),
    Placed(
        "Der Rechnungslauf darf nie vor sechs Uhr früh starten, sonst fehlen"
        " die Buchungen der Nacht.",
        "repo",
    ),
    Placed("Wir bauen das Paket hier mit Meson, CMake haben wir abgeschafft.", "repo"),
    Placed("Sprich mich künftig mit Du an und lass die Emojis weg.", "user"),
    Placed("Réponds-moi toujours en français, même quand je colle du code anglais.", "user"),
    Placed(
        "Les fichiers du dossier generated/ sont produits par le script"
        " gen.sh, il ne faut pas les modifier à la main.",
        "repo",
    ),
    Placed("Je préfère qu'on me montre d'abord le plan avant de toucher au code.", "user"),
    Placed(
        "Dans ce dépôt, les montants sont des entiers en centimes, jamais des flottants.", "repo"
    ),
    Placed("No me expliques lo obvio, llevo quince años programando en C++.", "user"),
    Placed("El servicio de pagos escucha en el puerto 7443 y sólo acepta TLS mutuo.", "repo"),
    Placed("Aquí los mensajes de commit llevan el número del ticket al principio.", "repo"),
    Placed("Cuando me des ejemplos, prefiero que sean en Kotlin.", "user"),
    Placed("以后回答我的时候先给结论，再给理由。", "user"),
    Placed("这个仓库的日志一律用 UTC 时间，不要用本地时间。", "repo"),
    Placed("我们的测试要先启动 docker compose 里的 redis，否则会全部失败。", "repo"),
    Placed("请不要在回复里使用表格，我用的是读屏软件。", "user"),
    Placed("コードのコメントは日本語で書いてください。私はその方が読みやすいです。", "user"),
    Placed("このプロジェクトでは本番のDBに直接つなぐことは禁止です。", "repo"),
    Placed("デプロイは scripts/release.sh で行い、手動ではやりません。", "repo"),
    Placed("説明は短く、箇条書きでお願いします、これからもずっと。", "user"),
)
