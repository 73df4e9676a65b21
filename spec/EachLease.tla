----------------------------- MODULE EachLease ------------------------------
(***************************************************************************)
(* Each lease of several behaves as if it were the only one. So whatever   *)
(* holds of a single lease holds of each.                                  *)
(***************************************************************************)
EXTENDS Leases

CONSTANTS
    Steps       \* of each history, so many steps are looked at

IsShort == TLCGet("level") < Steps

Of(f, l) == IF f # Nothing /\ f.lease = l THEN f ELSE Nothing
Only(values, l) == [w \in Workers |-> [x \in {l} |-> values[w][x]]]

(* The row of a child is there before the shard is split: nobody has       *)
(* looked yet.                                                             *)
Alone(l) == INSTANCE Leases WITH
    Parent <- l,
    Children <- {},
    row <- [x \in {l} |-> [row[x] EXCEPT !.exists = TRUE]],
    known <- Only(known, l),
    held <- Only(held, l),
    age <- Only(age, l),
    waited <- Only(waited, l),
    landed <- Only(landed, l),
    overtaken <- Only(overtaken, l),
    flight <- [w \in Workers |-> Of(flight[w], l)],
    late <- Of(late, l),
    reads <- [w \in Workers |-> {}]

Child == CHOOSE l \in Children : TRUE

ParentAlone == Alone(Parent)!Init /\ [][Alone(Parent)!Next]_(Alone(Parent)!vars)
ChildAlone == Alone(Child)!Init /\ [][Alone(Child)!Next]_(Alone(Child)!vars)
=============================================================================
