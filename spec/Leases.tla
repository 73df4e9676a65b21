------------------------------- MODULE Leases -------------------------------
(***************************************************************************)
(* Which worker reads which shard: the rows of the lease table, the        *)
(* conditional writes to them, and what each worker believes in between.   *)
(*                                                                         *)
(* A comment such as `lease.held.HeldLease.release` names the code of a    *)
(* step: sparkinesis.lease.held. A test looks whether it is there.         *)
(* Time is a count of ticks. Every worker has a clock that runs as fast    *)
(* as all others, also while the worker sleeps (a paused process, a        *)
(* machine that is suspended). There is no common time.                    *)
(*                                                                         *)
(* Counters only rise, so a worker's counter of a row is told by one bit:  *)
(* `same` is TRUE as long as the row still has the counter that the worker *)
(* knows. Loads and checkpoints do not matter here: any worker may take    *)
(* any lease that the rules let it take, and a checkpoint is a renewal.    *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Workers,    \* worker ids; each is started once
    Parent,     \* the lease of a shard that is split
    Children,   \* the leases of its children
    None,       \* no worker
    Failover,   \* failover_time: ticks until a lease that is not renewed is taken
    Handoff,    \* handoff_timeout: ticks that an owner has to release a requested lease
    Failures,   \* the most failures in a history
    Fault       \* the name of a planted fault, or "none"

Leases == {Parent} \cup Children
Overdue == Handoff + Failover   \* a requested lease is taken after more ticks than these
Min(a, b) == IF a < b THEN a ELSE b

VARIABLES
    row,       \* the table: of each lease
    state,     \* of each worker: "new", "up", "asleep", "leaving" or "down"
    known,     \* of each worker and lease: the row as this worker last knew it
    held,      \* of each worker and lease: whether it is a HeldLease that is not lost
    age,       \* ticks since the last successful write of a held lease was SENT;
               \*   for others, since this worker first saw the row's counter
    waited,    \* ticks since this worker first saw that a lease is requested
    flight,    \* of each worker: the write that it has sent, and waits for
    late,      \* a write without an answer that is still on its way
    landed,    \* of each worker and lease: its write without an answer made the row
    overtaken, \* of each worker and lease: it was too late to release a requested lease
    reads,     \* of each worker: the children whose records it reads
    failures   \* how many failures there were

vars == <<row, state, known, held, age, waited, flight, late, landed, overtaken, reads, failures>>

Nothing == [op |-> "nothing"]
Missing == [exists |-> FALSE, owner |-> None, by |-> None, done |-> FALSE]
Unseen == [owner |-> None, by |-> None, same |-> FALSE]

Init ==
    /\ row = [l \in Leases |-> IF l = Parent THEN [Missing EXCEPT !.exists = TRUE] ELSE Missing]
    /\ state = [w \in Workers |-> "new"]
    /\ known = [w \in Workers |-> [l \in Leases |-> Unseen]]
    /\ held = [w \in Workers |-> [l \in Leases |-> FALSE]]
    /\ age = [w \in Workers |-> [l \in Leases |-> 0]]
    /\ waited = [w \in Workers |-> [l \in Leases |-> 0]]
    /\ flight = [w \in Workers |-> Nothing]
    /\ late = Nothing
    /\ landed = [w \in Workers |-> [l \in Leases |-> FALSE]]
    /\ overtaken = [w \in Workers |-> [l \in Leases |-> FALSE]]
    /\ reads = [w \in Workers |-> {}]
    /\ failures = 0

-----------------------------------------------------------------------------
(* What a worker believes, and what the row lets it do.                    *)

IsHeld(w, l) == held[w][l] /\ age[w][l] <= Failover         \* lease.held.HeldLease.is_held
ActualOwner(r) == IF r.by # None THEN r.by ELSE r.owner     \* lease.lease.Lease.actual_owner
OwnersMatch(r, k) == r.owner = k.owner /\ r.by = k.by
RowLets(w, l) == known[w][l].same /\ OwnersMatch(row[l], known[w][l])
HandoffTo(w, l) == known[w][l].by = w /\ known[w][l].owner # w \* lease.held.HeldLease.handoff_to
IsAwake(w) == state[w] \in {"up", "leaving"}
IsFree(w) == IsAwake(w) /\ flight[w] = Nothing

-----------------------------------------------------------------------------
(* A worker looks at the table, and sends writes.                          *)

Start(w) ==
    /\ state[w] = "new"
    /\ state' = [state EXCEPT ![w] = "up"]
    /\ UNCHANGED <<row, known, held, age, waited, flight, late, landed, overtaken, reads, failures>>

(* The row of a lease as a worker knows it after a scan. *)
Scanned(w, l) ==
    IF held[w][l]
    THEN IF known[w][l].same /\ row[l].by = w               \* lease.held.HeldLease.observe
         THEN [owner |-> row[l].owner, by |-> row[l].by, same |-> TRUE]
         ELSE known[w][l]
    ELSE IF row[l].exists /\ ~row[l].done
         THEN [owner |-> row[l].owner, by |-> row[l].by, same |-> TRUE]
         ELSE Unseen

IsWatched(w, r) == r.owner \notin {None, w} \/ r.by # None

(* lease.rules.observations.observe; of a lease without an owner, the age   *)
(* does not matter.                                                        *)
ScannedAge(w, l) ==
    IF held[w][l] \/ (known[w][l].same /\ IsWatched(w, row[l])) THEN age[w][l] ELSE 0

ScannedWait(w, l) ==
    IF held[w][l] \/ row[l].by = None \/ ~OwnersMatch(row[l], known[w][l])
    THEN 0 ELSE waited[w][l]

(* to: the worker that shall have the lease, or None.                      *)
Send(w, op, l, to, after) ==
    flight' = [flight EXCEPT ![w] =
        [op |-> op, is |-> "sent", lease |-> l, to |-> to, age |-> 0,
         owner |-> after.owner, by |-> after.by, same |-> after.same]]

IsSent(f) == f # Nothing /\ f.is = "sent"

(* lease.rules.taker.plan_takes: what may be taken after this scan.        *)
MayTake(w, l) ==
    LET r == row[l] IN
    /\ state[w] = "up" /\ r.exists /\ ~r.done /\ ~held[w][l]
    /\ \/ r.owner = None
       \/ r.owner = w /\ r.by = None                                        \* adopt
       \/ IF Fault = "taken too early" THEN ScannedAge(w, l) >= Failover
                                       ELSE ScannedAge(w, l) > Failover     \* expired
       \/ r.by # None /\ ScannedWait(w, l) > Overdue + (IF r.owner = w THEN 0 ELSE Failover)

MayRequest(w, l) ==
    LET r == row[l] IN
    /\ state[w] = "up" /\ r.exists /\ ~r.done /\ ~held[w][l]
    /\ r.owner \notin {None, w} /\ r.by = None

(* lease.coordinator.LeaseCoordinator.withdraw_requests, by a worker that  *)
(* ends.                                                                   *)
MayWithdraw(w, l) ==
    state[w] = "leaving" /\ row[l].exists /\ row[l].owner = w /\ row[l].by # None /\ ~held[w][l]

Look(w) ==
    /\ IsFree(w)
    /\ known' = [known EXCEPT ![w] = [l \in Leases |-> Scanned(w, l)]]
    /\ age' = [age EXCEPT ![w] = [l \in Leases |-> ScannedAge(w, l)]]
    /\ waited' = [waited EXCEPT ![w] = [l \in Leases |-> ScannedWait(w, l)]]
    /\ UNCHANGED <<row, state, held, late, landed, overtaken, reads, failures>>

(* lease.coordinator.LeaseCoordinator.take: a scan, and at most one write. *)
Scan(w) ==
    /\ Look(w)
    /\ \/ UNCHANGED flight
       \/ \E l \in Leases : MayTake(w, l) /\ Send(w, "take", l, w, Scanned(w, l))
       \/ \E l \in Leases : MayRequest(w, l) /\ Send(w, "request", l, w, Scanned(w, l))
       \/ \E l \in Leases : MayWithdraw(w, l) /\ Send(w, "withdraw", l, None, Scanned(w, l))

(* lease.renewer.LeaseRenewer.renew_all; a checkpoint is such a write, too. *)
Renew(w, l) ==
    /\ IsFree(w) /\ IsHeld(w, l)
    /\ age[w][l] > 0                                        \* a renewal in each tick is enough
    /\ Send(w, "renew", l, None, known[w][l])
    /\ UNCHANGED <<row, state, known, held, age, waited, late, landed, overtaken, reads, failures>>

(* The shard has been split: whoever finds the children makes their rows.  *)
Sync(w) ==                               \* lease.shards.shard_syncer.ShardSyncer, lease.shards.shard_ends
    /\ IsFree(w) /\ \E l \in Children : ~row[l].exists
    /\ row' = [l \in Leases |-> IF l \in Children THEN [row[l] EXCEPT !.exists = TRUE] ELSE row[l]]
    /\ UNCHANGED <<state, known, held, age, waited, flight, late, landed, overtaken, reads, failures>>

(* All records of the parent are done: checkpoint SHARD_END.               *)
EndShard(w) ==
    /\ IsFree(w) /\ IsHeld(w, Parent) /\ ~row[Parent].done
    /\ \A l \in Children : row[l].exists
    /\ Send(w, "end", Parent, None, known[w][Parent])
    /\ UNCHANGED <<row, state, known, held, age, waited, late, landed, overtaken, reads, failures>>

(* lease.held.HeldLease.release: the belief ends before the write is sent. *)
Release(w, l) ==
    /\ IsFree(w) /\ IsHeld(w, l)
    /\ Send(w, "release", l, None, known[w][l])
    /\ held' = [held EXCEPT ![w][l] = (Fault = "released after the write")]
    /\ age' = [age EXCEPT ![w][l] = IF Fault = "released after the write" THEN @ ELSE 0]
    /\ reads' = [reads EXCEPT ![w] = @ \ {l}]
    /\ overtaken' = [overtaken EXCEPT ![w][l] = FALSE]
    /\ UNCHANGED <<row, state, known, waited, late, landed, failures>>

(* A child is read once its parent is done, by a look at the table.        *)
Read(w, l) ==
    /\ IsFree(w) /\ l \in Children /\ IsHeld(w, l) /\ l \notin reads[w]
    /\ row[Parent].done \/ Fault = "children at once"
    /\ reads' = [reads EXCEPT ![w] = @ \cup {l}]
    /\ UNCHANGED <<row, state, known, held, age, waited, flight, late, landed, overtaken, failures>>

-----------------------------------------------------------------------------
(* The table executes a write, or refuses it.                              *)

Raises(op) == op \in {"renew", "end", "take", "release", "assign"}  \* those that raise the counter

(* The conditions: lease.table.requests.renew, lease.table.requests.take,  *)
(* lease.table.requests.release, lease.table.requests.initiate_handoff.    *)
Holds(f) ==
    LET r == row[f.lease] IN
    /\ r.exists
    /\ CASE f.op \in {"renew", "end"} -> f.same /\ OwnersMatch(r, f)
         [] f.op = "take" -> (f.same \/ Fault = "taken without the counter")
                             /\ (OwnersMatch(r, f) \/ Fault = "taken by the counter alone")
         [] f.op = "release" -> OwnersMatch(r, f) /\ (f.same \/ Fault = "released by the owner alone")
         [] f.op = "assign" -> \/ Fault = "assigned without a condition"
                               \/ OwnersMatch(r, f) /\ (f.same \/ Fault = "assigned by the owners alone")
         [] OTHER -> OwnersMatch(r, f) \/ (f.op = "withdraw" /\ Fault = "given back without a condition")

After(f) ==
    LET r == row[f.lease] IN
    CASE f.op = "renew" -> r
      [] f.op = "end" -> [r EXCEPT !.done = TRUE]
      [] f.op \in {"take", "assign"} -> [r EXCEPT !.owner = f.to, !.by = None]
      [] f.op = "request" -> [r EXCEPT !.owner = f.to, !.by = r.owner]
      [] f.op = "withdraw" -> [r EXCEPT !.owner = f.by, !.by = None]
      [] f.op = "release" -> [r EXCEPT !.owner = IF r.by = None THEN None ELSE @, !.by = None]

Rows(f) == [row EXCEPT ![f.lease] = After(f)]

(* What others know of the row's counter after a write that raises it.     *)
Forgotten(f, keeps) ==      \* keeps: the worker that gets the answer, or None
    [v \in Workers |-> [l \in Leases |->
        IF l = f.lease /\ Raises(f.op) /\ v # keeps
        THEN [known[v][l] EXCEPT !.same = FALSE] ELSE known[v][l]]]

Outdated(g, f) ==
    IF g # Nothing /\ g.lease = f.lease /\ Raises(f.op) THEN [g EXCEPT !.same = FALSE] ELSE g

(* Workers that believe in a lease, or will with the answer that is on its *)
(* way, and from whom the lease is taken because it was requested of them. *)
Overtaken(f) ==
    [v \in Workers |-> [l \in Leases |->
        IF l = f.lease /\ f.op \in {"take", "assign"} /\ v # f.to /\ row[l].by = v
              /\ (IsHeld(v, l) \/ (flight[v] # Nothing /\ flight[v].is = "executed" /\ flight[v].lease = l))
        THEN TRUE ELSE overtaken[v][l]]]

Unlanded(w, f, mine) ==
    [v \in Workers |-> [l \in Leases |->
        IF l # f.lease THEN landed[v][l] ELSE IF v = w THEN mine ELSE
            (IF Raises(f.op) THEN FALSE ELSE landed[v][l])]]

(* The table executes a write. The answer is on its way.                   *)
Execute(w) ==
    LET f == flight[w] IN
    /\ IsSent(f) /\ Holds(f)
    /\ row' = Rows(f)
    /\ known' = Forgotten(f, IF f.op = "assign" THEN None ELSE w)
    /\ flight' = [v \in Workers |->
           IF v # w THEN Outdated(flight[v], f)
           ELSE [f EXCEPT !.is = "executed", !.same = TRUE,
                          !.owner = After(f).owner, !.by = After(f).by]]
    /\ late' = Outdated(late, f)
    /\ landed' = Unlanded(w, f, FALSE)
    /\ overtaken' = Overtaken(f)
    /\ UNCHANGED <<state, held, age, waited, reads, failures>>

(* The answer arrives. A renewal counts from the time at which it was sent. *)
Receive(w) ==
    LET f == flight[w]
        l == f.lease
        ends == f.op \in {"end", "release"}
        since == IF Fault = "counted from the answer" THEN 0 ELSE f.age
        holds == since <= Failover /\ (f.op = "take" \/ held[w][l])
    IN
    /\ f # Nothing /\ f.is = "executed" /\ IsAwake(w)
    /\ flight' = [flight EXCEPT ![w] = Nothing]
    /\ IF f.op \in {"request", "withdraw", "assign"}
       THEN UNCHANGED <<known, held, age, reads, overtaken>>
       ELSE /\ held' = [held EXCEPT ![w][l] = holds /\ ~ends]
            /\ age' = [age EXCEPT ![w] = [k \in Leases |->
                   IF k = l \/ (held[w][k] /\ Fault = "renewed with another")
                   THEN (IF holds /\ ~ends THEN since ELSE 0) ELSE @[k]]]
            /\ known' = [known EXCEPT ![w][l] =
                   IF holds /\ ~ends THEN [owner |-> f.owner, by |-> f.by, same |-> f.same] ELSE Unseen]
            /\ reads' = IF holds /\ ~ends THEN reads ELSE [reads EXCEPT ![w] = @ \ {l}]
            /\ overtaken' = [overtaken EXCEPT ![w][l] = @ /\ holds /\ ~ends]
    /\ waited' = [waited EXCEPT ![w][l] = 0]
    /\ UNCHANGED <<row, state, late, landed, failures>>

(* The write is refused; the answer has the row.                           *)
(* lease.table.write_conflict.resolve_conflict                             *)
Refuse(w) ==
    LET f == flight[w] l == f.lease r == row[l]
        mine == ActualOwner(r) = w
        again == f.op = "release" /\ mine /\ r.owner # None
        stays == held[w][l] /\ mine /\ (known[w][l].same \/ landed[w][l])
    IN
    /\ IsSent(f) /\ IsAwake(w) /\ ~Holds(f)
    /\ flight' = [flight EXCEPT ![w] =
           IF again THEN [@ EXCEPT !.owner = r.owner, !.by = r.by, !.same = TRUE] ELSE Nothing]
    /\ IF f.op \in {"renew", "end"}
       THEN /\ held' = [held EXCEPT ![w][l] = stays]
            /\ age' = [age EXCEPT ![w][l] = IF stays THEN @ ELSE 0]
            /\ known' = [known EXCEPT ![w][l] =
                   IF stays THEN [owner |-> r.owner, by |-> r.by, same |-> TRUE] ELSE Unseen]
            /\ landed' = [landed EXCEPT ![w][l] = FALSE]
            /\ reads' = IF stays THEN reads ELSE [reads EXCEPT ![w] = @ \ {l}]
            /\ overtaken' = [overtaken EXCEPT ![w][l] = stays /\ @]
       ELSE /\ UNCHANGED <<held, age, landed, reads, overtaken>>
            /\ known' = [known EXCEPT ![w][l] = IF held[w][l] THEN @ ELSE Unseen]
    /\ UNCHANGED <<row, state, waited, late, failures>>

-----------------------------------------------------------------------------
(* Failures.                                                               *)

Fail == failures < Failures /\ failures' = failures + 1

(* The write was executed, and the answer is lost.                         *)
LoseAnswer(w) ==
    LET f == flight[w] l == f.lease IN
    /\ Fail /\ f # Nothing /\ f.is = "executed"
    /\ flight' = [flight EXCEPT ![w] = Nothing]
    /\ landed' = [landed EXCEPT ![w][l] = f.same /\ held[w][l] /\ f.op \in {"renew", "end"}]
    /\ UNCHANGED <<row, state, known, held, age, waited, late, overtaken, reads>>

(* The worker waits no longer for a write that is still on its way.        *)
GiveUp(w) ==
    /\ Fail /\ IsSent(flight[w]) /\ late = Nothing
    /\ late' = [flight[w] EXCEPT !.age = 0] @@ [worker |-> w]
    /\ flight' = [flight EXCEPT ![w] = Nothing]
    /\ UNCHANGED <<row, state, known, held, age, waited, landed, overtaken, reads>>

Gone(w) ==
    /\ state' = [state EXCEPT ![w] = "down"]
    /\ known' = [known EXCEPT ![w] = [l \in Leases |-> Unseen]]
    /\ held' = [held EXCEPT ![w] = [l \in Leases |-> FALSE]]
    /\ age' = [age EXCEPT ![w] = [l \in Leases |-> 0]]
    /\ waited' = [waited EXCEPT ![w] = [l \in Leases |-> 0]]
    /\ landed' = [landed EXCEPT ![w] = [l \in Leases |-> FALSE]]
    /\ overtaken' = [overtaken EXCEPT ![w] = [l \in Leases |-> FALSE]]
    /\ reads' = [reads EXCEPT ![w] = {}]

Crash(w) ==
    /\ Fail /\ state[w] \in {"up", "asleep", "leaving"} /\ Gone(w)
    /\ \/ late = Nothing /\ IsSent(flight[w])
          /\ late' = [flight[w] EXCEPT !.age = 0] @@ [worker |-> w]
       \/ UNCHANGED late
    /\ flight' = [flight EXCEPT ![w] = Nothing]
    /\ UNCHANGED row

(* A graceful shutdown begins, and ends once nothing is held or requested. *)
Leave(w) ==
    /\ state[w] = "up"
    /\ state' = [state EXCEPT ![w] = "leaving"]
    /\ UNCHANGED <<row, known, held, age, waited, flight, late, landed, overtaken, reads, failures>>

End(w) ==
    /\ state[w] = "leaving" /\ flight[w] = Nothing
    /\ \A l \in Leases : ~held[w][l] /\ ~MayWithdraw(w, l)
    /\ Gone(w)
    /\ UNCHANGED <<row, flight, late, failures>>

Sleep(w) ==
    /\ Fail /\ state[w] = "up"
    /\ state' = [state EXCEPT ![w] = "asleep"]
    /\ UNCHANGED <<row, known, held, age, waited, flight, late, landed, overtaken, reads>>

Wake(w) ==
    /\ state[w] = "asleep"
    /\ state' = [state EXCEPT ![w] = "up"]
    /\ UNCHANGED <<row, known, held, age, waited, flight, late, landed, overtaken, reads, failures>>

(* A late write reaches the table at last, or never does.                  *)
Arrive ==
    /\ late # Nothing
    /\ late' = Nothing
    /\ \/ UNCHANGED <<row, known, flight, landed, overtaken>>
       \/ LET w == late.worker IN
          /\ Holds(late)
          /\ row' = Rows(late)
          /\ known' = Forgotten(late, None)
          /\ flight' = [v \in Workers |-> Outdated(flight[v], late)]
          /\ landed' = Unlanded(w, late, late.op \in {"renew", "end"} /\ held[w][late.lease])
          /\ overtaken' = Overtaken(late)
    /\ UNCHANGED <<state, held, age, waited, reads, failures>>

-----------------------------------------------------------------------------
(* Time. A worker that is awake renews in time, and its writes take less   *)
(* than a tick: what is slower is one of the failures above.               *)

IsDue(w) ==
    /\ IsAwake(w)
    /\ \/ flight[w] # Nothing /\ flight[w].age > 0
       \/ \E l \in Leases : IsHeld(w, l) /\ age[w][l] >= Failover

Tick ==
    /\ \A w \in Workers : ~IsDue(w)
    /\ LET older(w, l) == Min(age[w][l] + 1, Failover + 1)
           \* The answer to a renewal that was sent in time may make the lease held again.
           waits(w, l) == flight[w] # Nothing /\ flight[w].lease = l
           lost(w, l) == held[w][l] /\ older(w, l) > Failover /\ ~waits(w, l)
       IN
       /\ age' = [w \in Workers |-> [l \in Leases |->
              IF lost(w, l) THEN 0
              ELSE IF held[w][l] \/ (known[w][l].same /\ IsWatched(w, known[w][l]))
              THEN older(w, l) ELSE 0]]
       /\ held' = [w \in Workers |-> [l \in Leases |-> held[w][l] /\ ~lost(w, l)]]
       /\ known' = [w \in Workers |-> [l \in Leases |->
              IF lost(w, l) THEN Unseen ELSE known[w][l]]]
       /\ landed' = [w \in Workers |-> [l \in Leases |-> landed[w][l] /\ ~lost(w, l)]]
       /\ overtaken' = [w \in Workers |-> [l \in Leases |-> overtaken[w][l] /\ ~lost(w, l)]]
       /\ reads' = [w \in Workers |-> {l \in reads[w] : ~lost(w, l)}]
       /\ waited' = [w \in Workers |-> [l \in Leases |->
              IF held[w][l] \/ known[w][l].by = None THEN 0
              ELSE Min(waited[w][l] + 1, Overdue + Failover + 1)]]
       /\ flight' = [w \in Workers |->
              IF flight[w] = Nothing THEN Nothing
              ELSE [flight[w] EXCEPT !.age = Min(@ + 1, Failover + 1)]]
    /\ UNCHANGED <<row, state, late, failures>>

-----------------------------------------------------------------------------

Next ==
    \/ Tick
    \/ Arrive
    \/ \E w \in Workers :
        \/ Start(w) \/ Scan(w) \/ Sync(w) \/ EndShard(w) \/ Execute(w) \/ Receive(w) \/ Refuse(w)
        \/ LoseAnswer(w) \/ GiveUp(w) \/ Crash(w) \/ Sleep(w) \/ Wake(w) \/ Leave(w) \/ End(w)
        \/ \E l \in Leases : Renew(w, l) \/ Release(w, l) \/ Read(w, l)

Ids == Permutations(Workers)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What has to hold.                                                       *)

Believers(l) == {w \in Workers : IsHeld(w, l) /\ ~overtaken[w][l]}

(* L2: two workers never both believe that they hold a lease, but for an   *)
(* owner that was too late to release a lease which was requested.         *)
OneHolder == \A l \in Leases : Cardinality(Believers(l)) <= 1

(* Two workers never both believe that they may checkpoint under a row     *)
(* that lets them: that owner, too, is refused.                            *)
OneWriter ==
    \A l \in Leases : Cardinality({w \in Workers : IsHeld(w, l) /\ RowLets(w, l)}) <= 1

(* W1: a child is read only after all records of its parent are done.      *)
ChildrenAfterParent ==
    \A w \in Workers : \A l \in reads[w] : row[Parent].done

(* A handoff has an owner that lets go, and a worker that waits.           *)
HandoffNamesTwo == \A l \in Leases : row[l].by # None => row[l].owner \notin {None, row[l].by}
=============================================================================
