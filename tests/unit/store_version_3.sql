BEGIN TRANSACTION;
CREATE TABLE hops (
    trial TEXT NOT NULL REFERENCES trials, stream TEXT NOT NULL, position INTEGER NOT NULL,
    hop TEXT NOT NULL, counter TEXT NOT NULL, role TEXT NOT NULL, grew INTEGER,
    PRIMARY KEY (trial, stream, position)
) STRICT;
INSERT INTO "hops" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1','left',0,'ingress tap','tx_dropped','dropped',10);
INSERT INTO "hops" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1','',0,'guest softnet','dropped','repeated',0);
INSERT INTO "hops" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1','neighbour second',0,'guest softnet','dropped','repeated',0);
CREATE TABLE losses (
    trial TEXT NOT NULL REFERENCES trials, stream TEXT NOT NULL, position INTEGER NOT NULL,
    hop TEXT NOT NULL, frames INTEGER NOT NULL, PRIMARY KEY (trial, stream, position)
) STRICT;
INSERT INTO "losses" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1','left',0,'ingress tap (tx_dropped)',10);
CREATE TABLE maxima (uut TEXT NOT NULL, frame_size INTEGER NOT NULL, fps REAL NOT NULL, load TEXT NOT NULL, repetitions INTEGER NOT NULL, PRIMARY KEY (uut, frame_size)) STRICT;
INSERT INTO "maxima" VALUES('virtio',64,54321.125,'max',3);
CREATE TABLE neighbours (
    trial TEXT NOT NULL REFERENCES trials, position INTEGER NOT NULL,
    name TEXT NOT NULL, activity TEXT NOT NULL, frame_size INTEGER, cpu_s TEXT NOT NULL, PRIMARY KEY (trial, position), UNIQUE (trial, name)
) STRICT;
INSERT INTO "neighbours" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1',0,'second','forwarding',64,'{"guest": 0.25}');
CREATE TABLE reasons (
    trial TEXT NOT NULL REFERENCES trials, position INTEGER NOT NULL,
    kind TEXT NOT NULL, stream TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (trial, position)
) STRICT;
INSERT INTO "reasons" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1',0,'capture-failed','right','tcpdump: gone');
INSERT INTO "reasons" VALUES('virtio/dedicated/left+right/64/1000fps/2',0,'uut-failed','','gone');
CREATE TABLE streams (
    trial TEXT NOT NULL REFERENCES trials, position INTEGER NOT NULL,
    stream TEXT NOT NULL, intended_fps REAL, intended_frames INTEGER, sent_frames INTEGER NOT NULL, generator_errors INTEGER NOT NULL, duration_s REAL NOT NULL, first_sent_ns INTEGER, last_sent_ns INTEGER, max_burst_frames INTEGER NOT NULL, max_lateness_s REAL NOT NULL, received_frames INTEGER, duplicate_frames INTEGER, reordered_frames INTEGER, foreign_frames INTEGER, capture_dropped_frames INTEGER, unexplained_frames INTEGER, longest_loss_run_frames INTEGER, loss_runs INTEGER, first_received_ns INTEGER, last_received_ns INTEGER, delay_min_ns INTEGER, delay_median_ns INTEGER, delay_max_ns INTEGER, guest TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (trial, position)
) STRICT;
INSERT INTO "streams" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1',0,'left',1000.0,1000,1000,0,1.0,0,999000000,1,0.0001,990,0,0,0,0,0,3,4,20000,999020000,NULL,200000,9000000,'');
INSERT INTO "streams" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1',1,'right',1000.0,1000,1000,0,1.0,0,999000000,1,0.0001,NULL,0,0,0,0,NULL,NULL,NULL,20000,999020000,NULL,NULL,NULL,'');
INSERT INTO "streams" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1',2,'s2',1000.0,1000,500,0,1.0,0,999000000,1,0.0001,500,0,0,0,0,0,0,0,20000,999020000,80000,90000,100000,'second');
CREATE TABLE trials (
    key TEXT PRIMARY KEY, plan_index INTEGER NOT NULL, uut TEXT NOT NULL, scenario TEXT NOT NULL,
    frame_size INTEGER NOT NULL, load TEXT NOT NULL, repetition INTEGER NOT NULL,
    attempt INTEGER NOT NULL, started_ns INTEGER NOT NULL, verdict TEXT NOT NULL, steps_s TEXT NOT NULL,
    streams TEXT NOT NULL, cpu_s TEXT NOT NULL, lifetime INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "trials" VALUES('virtio/shared-forwarding/left+right/64/1000fps/1',0,'virtio','shared-forwarding',64,'1000fps',1,1,1741079700000000000,'invalid','{"send": 1.0, "drain": 0.25}','["left", "right"]','{"guest": 0.5, "host": 1.25}',2);
INSERT INTO "trials" VALUES('virtio/dedicated/left+right/64/1000fps/2',1,'virtio','dedicated',64,'1000fps',2,1,1741079700000000000,'invalid','{"arm": 0.5, "send": 1.0}','["left", "right"]','{}',0);
CREATE TABLE uuts (name TEXT NOT NULL, fact TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name, fact)) STRICT;
INSERT INTO "uuts" VALUES('virtio','accelerator','tcg');
INSERT INTO "uuts" VALUES('virtio','emulated','no KVM');
CREATE TABLE warnings (kind TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (kind, text)) STRICT;
COMMIT;
PRAGMA user_version = 3;
