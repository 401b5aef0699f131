"""The tables of who may do what: tokens, the pools of graphs, and the key that seals what the server gives out."""

from sqlalchemy import Column, ForeignKey, Index, LargeBinary, Table

from taskyard.store.tables.columns import key, metadata, moment, one_of, words

#: What a token can be for.
KINDS = ("user", "bot", "enrolment")

token = Table(
    "token",
    metadata,
    words("id", primary_key=True),  # the part of a token that may be shown
    words("kind"),
    words("name"),
    words("digest"),  # SHA-256 of its secret part, which is not stored
    words("scopes"),  # a JSON array
    words("pool", nullable=True),  # of the bots that it lets in
    moment("created_ms", nullable=False),
    moment("expires_ms"),
    moment("revoked_ms"),
    one_of("kind", KINDS),
)
Index("token_created", token.c.created_ms, token.c.id)

#: In which pools the tasks of a graph may run: whoever asks for the graph needs a right in one of them.
graph_pool = Table(
    "graph_pool",
    metadata,
    key("graph_id", ForeignKey("graph.id")),
    words("pool", primary_key=True),
    sqlite_with_rowid=False,
)
Index("graph_pool_pool", graph_pool.c.pool, graph_pool.c.graph_id)

#: By which key the tokens of running tasks are sealed (1), and by which they were before it was changed (2).
seal = Table("seal", metadata, key("id"), Column("body", LargeBinary(), nullable=False))
