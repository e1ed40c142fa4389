"""A third list, written later, before its author had read the code of memory; nothing is tuned on it.

The kinds are those of public instruction files for agents (languages of answers, commits, package
managers, tests, servers); no sentence is copied.
"""

from __future__ import annotations

from benchmarks.memory_meaning.values import Message, Pair, Placed

CORRECTIONS_FRESH = (
    Pair("Unit tests run with Jest", "Jest is gone from this repo, it's all Vitest."),
    Pair("Deploys go to Vercel", "We host on Railway, stop suggesting Vercel."),
    Pair("Indent with two spaces", "Four spaces please, I keep having to reformat your code."),
    Pair("Install packages with npm", "pnpm, not npm - the lockfile is pnpm-lock.yaml."),
    Pair("Commit messages are written in English", "Ich hätte die Commits lieber auf Deutsch."),
    Pair("Node 18 is the oldest version that we support", "We dropped Node 18, minimum is 20."),
    Pair("Docs are built with Sphinx", "The docs site was rewritten in MkDocs last month."),
    Pair(
        "Mira reviews database changes",
        "Database changes go to Tomás for review, Mira is on leave.",
    ),
    Pair("Die API läuft auf Port 8080", "Der Port der API ist jetzt 9000."),
    Pair("Wir deployen mit Ansible", "Ansible haben wir durch Terraform ersetzt."),
    Pair("Kommentare im Code sind deutsch", "Bitte schreib Kommentare künftig auf Englisch."),
    Pair("Réponds toujours en anglais", "Désormais, réponds-moi en français."),
    Pair("Le cache, c'est Memcached", "On est passés à Redis pour le cache."),
    Pair("Usamos Webpack para compilar", "Migramos la compilación de Webpack a Vite."),
    Pair("La rama principal es master", "Renombramos la rama principal: ahora se llama main."),
    Pair("用 yarn 安装依赖", "依赖改用 pnpm 安装,不要再用 yarn。"),
    Pair("测试放在 test 目录", "测试文件现在都放在 src 旁边的 __tests__ 里。"),
    Pair("変数名はスネークケースにする", "変数名はキャメルケースにしてください。"),
    Pair("CIはCircleCIです", "CIはGitHub Actionsに移行しました。"),
    Pair(
        "The staging database is Postgres 13",
        "Staging got upgraded to Postgres 16 over the weekend.",
    ),
)
BOTH_FRESH = (
    Pair("Install packages with pnpm", "Run the linter with `pnpm lint` before you commit."),
    Pair("Commit messages are written in English", "Never add a co-author line to commits."),
    Pair("Unit tests run with Vitest", "End-to-end tests run with Playwright."),
    Pair("The API listens on port 8080", "The admin page listens on port 9090."),
    Pair("Antworte auf Deutsch", "Code-Kommentare bitte auf Englisch."),
    Pair("Réponds en français", "Ne fais jamais de commit sans me demander."),
    Pair("Las pruebas corren con Vitest", "Los datos de prueba están en tests/fixtures."),
    Pair("提交信息用英文写", "用简体中文回答我的问题。"),
    Pair("テストはpytestで実行する", "テストの前に必ずmypyを実行する。"),
    Pair("Mira reviews database changes", "Tomás reviews changes of the frontend."),
)
PLACED_FRESH = (
    Placed("Antworte mir immer kurz und sachlich.", "user"),
    Placed("Ich arbeite lieber ohne Rückfragen, entscheide selbst.", "user"),
    Placed("Neue Dateien werden hier in TypeScript geschrieben.", "repo"),
    Placed("Der Build läuft über turbo.json.", "repo"),
    Placed("Pas d'emojis dans tes réponses.", "user"),
    Placed("Je veux que tu m'expliques tes choix avant de coder.", "user"),
    Placed("Le fichier Plans/GDD.md est la source de vérité du projet.", "repo"),
    Placed("Les tests de ce dépôt tournent avec Vitest.", "repo"),
    Placed("Sé muy conciso cuando me respondas.", "user"),
    Placed("Prefiero que me preguntes antes de borrar algo.", "user"),
    Placed("En este proyecto los planes van en .claude/plans.", "repo"),
    Placed("El servidor de desarrollo usa el puerto 8888.", "repo"),
    Placed("默认用简体中文回复我。", "user"),
    Placed("我喜欢简短的解释,不要长篇大论。", "user"),
    Placed("这个仓库用 pnpm 管理依赖。", "repo"),
    Placed("接口改动时要同步更新 docs/api.md。", "repo"),
    Placed("常に日本語で会話してください。", "user"),
    Placed("私への説明は箇条書きでお願いします。", "user"),
    Placed("このリポジトリのテストはsrcと同じ場所に置く。", "repo"),
    Placed("本番のログはCloudWatchにあります。", "repo"),
)
KEPT_FRESH = (
    Message("Before you start: never commit without my OK. Then fix the typo.", "commit", ""),
    Message(
        "Bevor du anfängst: Tests immer mit `make check`. Danach behebe #12.", "make check", ""
    ),
    Message(
        "I prefer British spelling in what you write to me. Now the README.", "British", "user"
    ),
    Message("Corrige le bug. Au fait, dans ce projet les dates sont en UTC.", "UTC", "repo"),
    Message(
        "The build broke because node_modules is cached: we always run `npm ci`.", "npm ci", ""
    ),
    Message("Arregla el test. Por cierto, aquí usamos pnpm para todo.", "pnpm", "repo"),
    Message("帮我看看这个报错。另外,回答我请用中文。", "中文", "user"),
    Message("このバグを直して。ちなみに、コミットメッセージは英語で書きます。", "英語", ""),
    Message("One thing to know: the legacy importer must stay on Python 3.8.", "3.8", "repo"),
    Message("Wichtig: an den Dateien unter gen/ darf nichts geändert werden.", "gen/", "repo"),
    Message(
        "We picked SQLite over DuckDB since the file is small. Write the loader.", "SQLite", "repo"
    ),
    Message("Ne pousse jamais sur main directement, d'accord ? Et lance les tests.", "main", ""),
)
NOT_KEPT_FRESH = (
    Message("Draft an AGENTS.md line: always run the linter before a commit."),
    Message("Use pnpm from now on. Hmm no, scratch that, npm stays."),
    Message("Would it be better if we always squashed merges?"),
    Message("Someone on Reddit says you should never use mocks. Thoughts?"),
    Message("For this commit only, skip the tests."),
    Message("Schreib mir eine Beispielregel wie: Antworte immer auf Deutsch."),
    Message("Angenommen, wir nehmen Kafka statt RabbitMQ: was kostet das?"),
    Message("Traduis : nous utilisons toujours des tabulations."),
    Message("Ejemplo de regla: nunca hagas push a main. ¿Te parece clara?"),
    Message("把这句话改得更通顺:我们从不在周五发布。"),
    Message("もし全部Rustで書き直したら、どのくらいかかりますか?"),
    Message("Read the log and tell me why it says 'tests must always use port 0'."),
)
