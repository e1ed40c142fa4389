"""Statements in six languages, written before the code that reads them, after the subjects of
public instruction files and bug reports; no sentence is copied.

The first half of each list (`OPEN`) may be looked at while memory is changed. The second half
(`SEALED`) was measured first and is only measured: do not tune anything on it.
"""

from __future__ import annotations

from typing import Any

from benchmarks.memory_meaning import fresh, later
from benchmarks.memory_meaning.values import Message, Pair, Placed

CORRECTIONS_OPEN = (
    Pair("The deploy script is scripts/ship.sh", "Deploys go through `make release` these days."),
    Pair("Frontend state lives in Redux", "We finally finished moving the store over to Zustand."),
    Pair("I drink my standup notes as bullet points", "Give me standup notes as one paragraph."),
    Pair("Line length is 88", "The linter allows 120 columns, I raised it yesterday."),
    Pair("Release branches are cut by Jonas", "Priya cuts the release branches, Jonas left."),
    Pair("The API returns XML", "Ah, the API has been JSON only since v3."),
    Pair(
        "Bilder liegen in einem S3-Bucket",
        "Die Bilder liegen inzwischen auf Cloudflare R2.",
    ),
    Pair("Antworte mir auf Deutsch", "Ab jetzt bitte auf Englisch antworten."),
    Pair(
        "Les migrations tournent avec Flyway",
        "On a remplacé Flyway par Liquibase pour les migrations.",
    ),
    Pair("Je préfère les réponses courtes", "Finalement je préfère des réponses détaillées."),
    Pair("Los tests corren con Jest", "Los tests ahora corren con Vitest."),
    Pair(
        "El servidor de pruebas es pruebas-1",
        "No, el servidor de pruebas es pruebas-7.",
    ),
    Pair("请用英文写提交信息", "提交信息改成用中文写。"),
    Pair("数据库用的是 MySQL 5.7", "数据库已经升级到 MySQL 8.0 了。"),
    Pair("コメントは英語で書く", "これからコメントは日本語で書いてください。"),
    Pair("本番環境はHerokuです", "本番環境はFly.ioに移りました。"),
    Pair("The nightly build starts at 02:00", "Nightly starts at 04:30, ops moved it."),
    Pair("Use four spaces in Go templates", "Tabs in Go templates please, the formatter wants it."),
    Pair("Our error tracker is Sentry", "Sentry got too expensive, errors go to GlitchTip."),
    Pair("Customer data is kept for 90 days", "Legal wants 30 days for customer data, not 90."),
)
CORRECTIONS_SEALED = (
    Pair("Docs are published from the gh-pages branch", "Docs come from Read the Docs, as of May."),
    Pair("The mobile app is written in Flutter", "We rewrote the mobile app in Kotlin and Swift."),
    Pair("Explain things step by step", "Skip the step by step explanations, I know this stack."),
    Pair("A pull request needs one approval", "Two approvals for a pull request since the audit."),
    Pair("The queue has 8 workers", "16 workers are on the queue, I doubled it."),
    Pair("The staging database is shared with QA", "Staging has its own database, QA got another."),
    Pair("Wir nutzen npm", "Wir sind auf pnpm umgestiegen."),
    Pair("Der Build läuft auf Jenkins", "Jenkins ist abgeschaltet, gebaut wird in GitLab CI."),
    Pair("Duze mich", "Bitte sieze mich."),
    Pair("Le port du serveur local est 3000", "Le serveur local écoute sur le port 8081."),
    Pair("La documentation est en anglais", "La documentation passe en français."),
    Pair("Usamos Python 3.9", "Ya estamos en Python 3.12."),
    Pair("Los mensajes de commit van en inglés", "Los commits mejor en español, por favor."),
    Pair("测试用 unittest 写", "测试现在都用 pytest 写。"),
    Pair("前端端口是 8080", "前端端口换成 5173 了。"),
    Pair("テストはJestで実行する", "テストはVitestに切り替えました。"),
    Pair("ブランチ名は feature/ で始める", "ブランチ名は今後 feat/ で始めてください。"),
    Pair("Feature flags come from LaunchDarkly", "Unleash serves the flags, the contract ended."),
    Pair("I work on a Mac", "I got a ThinkPad with Fedora, the Mac is gone."),
    Pair("Sam reviews the SQL", "Ask Noor to review the SQL, Sam changed teams."),
)
BOTH_OPEN = (
    Pair("The API listens on port 8080", "The metrics endpoint listens on port 9100."),
    Pair("Tests run with pytest", "Tests must not touch the network."),
    Pair("Lena owns billing", "Omar owns search."),
    Pair("Ich mag kurze Antworten", "Ich mag Beispiele in Rust."),
    Pair("Les commits sont en anglais", "Les commits citent le numéro du ticket."),
    Pair("Los logs van a Loki", "Los logs se guardan 14 días."),
    Pair("后端用 Go 写", "前端用 TypeScript 写。"),
    Pair("回答は日本語で", "コードの変数名は英語で書く。"),
    Pair("Use ruff for linting", "Use mypy for types."),
    Pair("The staging host is heron", "The production host is crane."),
)
BOTH_SEALED = (
    Pair("The web app is deployed on Mondays", "The worker is deployed on Thursdays."),
    Pair("I use Neovim", "I use the fish shell."),
    Pair("Passwords are hashed with argon2", "Passwords have at least 14 characters."),
    Pair("Die Kundendaten liegen in Frankfurt", "Die Rechnungen liegen in Dublin."),
    Pair("Réponds en français", "Réponds sans emojis."),
    Pair("El cliente de iOS usa SwiftUI", "El cliente de Android usa Compose."),
    Pair("接口超时是 30 秒", "数据库连接超时是 5 秒。"),
    Pair("CIはGitHub Actionsです", "CIは10分以内に終わること。"),
    Pair("Unit tests live next to the code", "Integration tests live in tests/integration."),
    Pair("Dates are shown in local time", "Dates are stored in UTC."),
)
PLACED_OPEN = (
    Placed("Antworte immer auf Deutsch.", "user"),
    Placed("Die Rechnungen liegen in src/billing.", "repo"),
    Placed("Ich arbeite lieber mit kleinen Commits.", "user"),
    Placed("Unsere API darf keine Stacktraces ausliefern.", "repo"),
    Placed("Réponds-moi sans introduction.", "user"),
    Placed("Le service de paiement tourne sur Kubernetes.", "repo"),
    Placed("Je n'aime pas les emojis dans tes réponses.", "user"),
    Placed("On déploie uniquement le mardi.", "repo"),
    Placed("Explícame los errores con un ejemplo.", "user"),
    Placed("La base de datos de este proyecto es PostgreSQL 16.", "repo"),
    Placed("Prefiero que me tutees.", "user"),
    Placed("Las facturas se generan en el módulo facturacion.", "repo"),
    Placed("以后请用中文回答我。", "user"),
    Placed("这个项目的测试用 pnpm test 运行。", "repo"),
    Placed("我喜欢简短的解释。", "user"),
    Placed("订单服务部署在阿里云上。", "repo"),
    Placed("回答は簡潔にしてください。", "user"),
    Placed("このリポジトリではmainに直接プッシュしない。", "repo"),
    Placed("私はVimを使っています。", "user"),
    Placed("認証はKeycloakで行っています。", "repo"),
)
PLACED_SEALED = (
    Placed("Erklär mir Änderungen bitte in zwei Sätzen.", "user"),
    Placed("Der Server für die Abnahme heißt abnahme-02.", "repo"),
    Placed("Ich bin farbenblind, also keine roten und grünen Markierungen.", "user"),
    Placed("Neue Tabellen brauchen immer eine Migration mit Alembic.", "repo"),
    Placed("Tutoie-moi.", "user"),
    Placed("Les tests d'intégration ont besoin de Docker.", "repo"),
    Placed("Je travaille sous Windows avec WSL.", "user"),
    Placed("Le dossier legacy ne doit plus être modifié.", "repo"),
    Placed("Respóndeme siempre en español.", "user"),
    Placed("El despliegue a producción lo hace Marisol los jueves.", "repo"),
    Placed("No me gustan las respuestas largas.", "user"),
    Placed("Nuestro frontend está hecho con Svelte.", "repo"),
    Placed("回答时不要使用表情符号。", "user"),
    Placed("所有接口都要写单元测试。", "repo"),
    Placed("我是做数据分析的,不太懂前端。", "user"),
    Placed("线上数据库只能通过堡垒机访问。", "repo"),
    Placed("説明は箇条書きでお願いします。", "user"),
    Placed("コミットメッセージはConventional Commitsに従う。", "repo"),
    Placed("私は夜に作業することが多いです。", "user"),
    Placed("画像はS3のassetsバケットに置いてあります。", "repo"),
)
KEPT_OPEN = (
    Message(
        "The upload test is red again, have a look. Two things to know: the CDN cache lives for"
        " 6 hours, and nobody may purge it by hand.",
        "6 hours",
        "repo",
    ),
    Message(
        "I tried the new layout and it is fine on my phone, less so on the tablet, whatever. For"
        " the record, tablets are used by the warehouse only, so a broken menu there stops"
        " shipping. Can you fix the breakpoint?",
        "(?i)warehouse",
        "repo",
    ),
    Message("Danke! Übrigens: Preise sind bei uns immer in Cent gespeichert.", "Cent", "repo"),
    Message("Corrige le bug du panier. Au fait, les prix sont toujours hors taxes.", "taxes"),
    Message("Arregla el login. Ojo: las sesiones caducan a los 20 minutos.", "20 minutos", "repo"),
    Message("先修一下登录。另外，我们的会话 20 分钟后过期。", "20 分钟", "repo"),
    Message("ログインを直して。ちなみにセッションは20分で切れます。", "20分", "repo"),
    Message(
        "rename the helper pls, and btw i hate abbreviations in names", "abbreviations", "user"
    ),
    Message("Never edit anything in gen/, it comes from protoc. Add a field to Order.", "gen/"),
    Message("We agreed in the retro that PRs stay under 400 lines.", "400 lines", "repo"),
    Message("I'm new to Rust, so name the borrow rule when you hit one.", "(?i)rust", "user"),
    Message("The on-call phone is with Ines until December 14.", "Ines", "repo"),
)
KEPT_SEALED = (
    Message(
        "Here is what I see: the page loads, then the spinner stays. The reason is usually the"
        " same: our proxy drops responses above 8 MB. Check whether the export is above that.",
        "8 MB",
        "repo",
    ),
    Message("Bitte bau den Filter ein. Wichtig: Postleitzahlen sind Text, keine Zahlen.", "Text"),
    Message("Refais le titre. Chez nous on écrit toujours « e-mail » avec un tiret.", "e-mail"),
    Message("Añade el campo. Recuerda que los importes van en céntimos.", "céntimos", "repo"),
    Message("加一个导出按钮。记住:金额单位是分。", "分", "repo"),
    Message("エクスポートを追加して。金額の単位は銭です、覚えておいて。", "銭", "repo"),
    Message("don't push anything yourself, i always do that. now fix the flaky test", "push"),
    Message("Our customers are hospitals, so downtime at night is fine, by day it is not.", "hosp"),
    Message("I read better with short paragraphs.", "paragraphs", "user"),
    Message(
        "The vendor folder is a mirror of upstream. Leave it alone and fix the parser.", "mirr"
    ),
    Message("Sort the imports. We pin every dependency to a hash, so no ranges.", "(?i)pin|hash"),
    Message("Die Schnittstelle zu SAP ist bis 15. Januar eingefroren.", "SAP", "repo"),
)
NOT_KEPT_OPEN = (
    Message("Always use tabs. Wait, no, forget that, leave the style as it is."),
    Message("Draft a mail to the team: from now on every deploy needs a ticket."),
    Message("Suppose we always stored prices as floats, what would break?"),
    Message('The README says "always run make bootstrap first". Is that still true?'),
    Message("Write a CONTRIBUTING.md that says: never force-push to main."),
    Message("Stell dir vor, wir würden immer freitags deployen. Was ginge schief?"),
    Message("Schreib einen Tweet: Wir nutzen ab heute Rust."),
    Message("Et si on utilisait toujours MongoDB, qu'est-ce qui changerait ?"),
    Message("Traduce al inglés: siempre cerramos los domingos."),
    Message("翻译成英文:我们总是用 Redis 做缓存。"),
    Message("次の文を英語に訳して:私たちは常にテストを書きます。"),
    Message("The server is down right now, so the tests fail."),
)
NOT_KEPT_SEALED = (
    Message("From now on answer in Spanish. Just kidding, English is fine."),
    Message("Give me an example of a rule such as: never commit generated files."),
    Message("If we used Kafka we would always need three brokers, right?"),
    Message("My colleague thinks we should never mock the database."),
    Message("Rewrite this sentence: we always ship on Fridays because we are brave."),
    Message("Nimm für diesen einen Test bitte SQLite."),
    Message("Ab sofort immer Tabs. Ach nein, vergiss es."),
    Message("Écris un commentaire qui dit que nous testons toujours avec Firefox."),
    Message("Imagina que siempre desplegamos a mano: ¿qué riesgos hay?"),
    Message("假设我们总是用 HTTP 而不是 HTTPS,会有什么问题?"),
    Message("例えば常にキャッシュを無効にするとしたら、何が遅くなりますか?"),
    Message("I'm just looking at the logs, give me a second."),
)
HALVES = ("open", "sealed", "fresh", "later")


def of(name: str, half: str) -> tuple[Any, ...]:
    """The cases of a list: `corrections`, `both`, `placed`, `kept` or `not_kept`."""
    lists = {"fresh": fresh, "later": later}
    source = vars(lists[half]) if half in lists else globals()
    return tuple(source[f"{name}_{half}".upper()])
