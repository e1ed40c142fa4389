"""Sixty notes with a question for each, in five languages and across languages.

Written before any model was run on them. A question shares few words with its note; the notes of
the other pairs, many of the same fields, are the wrong answers.
"""

from __future__ import annotations

from collections.abc import Mapping

PAIRS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "de": (
        ("Die Nachtsicherung läuft auf dem NAS im Keller.", "Wohin werden unsere Daten gesichert?"),
        ("Beträge werden kaufmännisch gerundet.", "Was passiert mit halben Cents?"),
        ("Der Zahlungsanbieter ist Mollie.", "Über wen bezahlen die Kunden?"),
        ("Kolleginnen werden in Texten immer geduzt.", "Wie reden wir die Nutzer an?"),
        ("Die Anmeldung läuft über Keycloak.", "Womit loggen sich Benutzer ein?"),
        ("Releases gibt es nur dienstags.", "An welchem Tag wird veröffentlicht?"),
        (
            "Vor jedem Merge schaut Jule auf die Barrierefreiheit.",
            "Wer prüft, ob Blinde die Seite bedienen können?",
        ),
        ("Bilder liegen in einem S3-Bucket in Frankfurt.", "Wo speichern wir Fotos?"),
        ("Für Diagramme nehmen wir Vega.", "Mit welcher Bibliothek zeichnen wir Grafiken?"),
        ("Ich arbeite freitags nicht.", "Wann bin ich nicht erreichbar?"),
    ),
    "fr": (
        ("Les courriels partent par Brevo.", "Quel service envoie nos messages aux clients ?"),
        (
            "Le cache expire au bout d'un quart d'heure.",
            "Combien de temps garde-t-on les réponses en mémoire ?",
        ),
        ("Je préfère des réponses courtes, sans code.", "Comment veux-tu qu'on te réponde ?"),
        (
            "Les tests d'intégration tournent la nuit sur GitLab.",
            "Quand les vérifications longues sont-elles exécutées ?",
        ),
        (
            "La base de production est en lecture seule pour les développeurs.",
            "Puis-je modifier une ligne chez le client directement ?",
        ),
        ("On a abandonné Redux pour Zustand.", "Où est rangé l'état de l'interface ?"),
        ("Les clés d'API sont dans Vault.", "Où trouver les secrets ?"),
        ("Chaque revue demande deux approbations.", "Combien de collègues doivent valider ?"),
        (
            "L'appli mobile est écrite en Kotlin.",
            "Dans quel langage est la version pour téléphone ?",
        ),
        (
            "Le journal des erreurs est lu par Sentry.",
            "Comment sommes-nous avertis des plantages ?",
        ),
    ),
    "es": (
        ("Los informes se generan el último día del mes.", "¿Cuándo salen los resúmenes?"),
        ("La cola de tareas es RabbitMQ.", "¿Quién reparte el trabajo en segundo plano?"),
        ("Las fechas se guardan en UTC.", "¿Qué huso horario usa la base de datos?"),
        (
            "Prefiero que me expliques los cambios antes de hacerlos.",
            "¿Debo avisarte antes de tocar un archivo?",
        ),
        ("El límite de subida es de 25 MB.", "¿Qué tamaño máximo puede tener un adjunto?"),
        ("Los mapas son de OpenStreetMap.", "¿De dónde sacamos la cartografía?"),
        ("La búsqueda funciona con Meilisearch.", "¿Qué motor encuentra los productos?"),
        ("Las contraseñas se cifran con argon2.", "¿Cómo protegemos las claves de los usuarios?"),
        ("El equipo de guardia cambia cada lunes.", "¿Cuándo rota el turno de emergencias?"),
        ("El diseño sigue la guía de Carbon.", "¿Qué sistema visual usamos?"),
    ),
    "zh": (
        ("订单数据每天凌晨两点归档。", "旧的交易记录什么时候被移走?"),
        ("前端用 Svelte 编写。", "网页界面用的是什么框架?"),
        ("我习惯用制表符缩进。", "代码对齐时我喜欢什么?"),
        ("支付回调必须验证签名。", "收到付款通知后首先检查什么?"),
        ("测试服务器在新加坡。", "预发布环境部署在哪个城市?"),
        ("短信由阿里云发送。", "验证码通过谁发出?"),
        ("接口超时时间是八秒。", "请求最多等多久?"),
        ("发布之前要通知客服团队。", "上线前应该告诉谁?"),
        ("图片压缩成 WebP 格式。", "照片以什么类型保存?"),
        ("数据库从 MySQL 迁移到了 TiDB。", "现在数据存在哪里?"),
    ),
    "ja": (
        ("在庫は毎朝六時に更新されます。", "商品の数はいつ新しくなりますか。"),
        ("認証には Auth0 を使っています。", "ログインの仕組みは何ですか。"),
        ("コメントは日本語で書いてください。", "コードの説明は何語にしますか。"),
        ("障害の連絡は Slack の #incident に流れます。", "問題が起きたらどこで知らせますか。"),
        ("請求書は PDF で送ります。", "顧客への請求はどの形式ですか。"),
        ("画像の変換は Lambda で行います。", "写真の加工はどこで動いていますか。"),
        (
            "私は左利きで、ショートカットは右手側が使いにくいです。",
            "キー操作を決めるとき何に気を付けますか。",
        ),
        ("検索の索引は週に一度作り直します。", "インデックスの再構築はどのくらいの頻度ですか。"),
        ("古いブラウザは対象外です。", "Internet Explorer で動かす必要がありますか。"),
        ("翻訳は Crowdin で管理しています。", "多言語の文章はどこで編集しますか。"),
    ),
    "across": (
        (
            "We roll back a release with `make undo`.",
            "Wie machen wir eine Auslieferung rückgängig?",
        ),
        (
            "Der Drucker im Lager versteht nur ZPL.",
            "Which format do the labels for the warehouse printer need?",
        ),
        ("Les factures sont numérotées par année.", "How are invoices counted?"),
        ("Prices are stored in cents, as whole numbers.", "金额在数据库里怎么保存?"),
        ("El servidor de correo está en Madrid.", "Where is our mail machine?"),
        ("我们不支持 32 位系统。", "Do we have to build for old 32-bit machines?"),
        ("Please never squash commits.", "コミットをまとめてもいいですか。"),
        ("テストは並列に実行しないでください。", "May the tests run at the same time?"),
        (
            "The queue consumer is written in Elixir.",
            "¿En qué lenguaje está el proceso que lee la cola?",
        ),
        ("Die Farben kommen aus tokens.json.", "Où sont définies les couleurs ?"),
    ),
}
