CREATE MATERIALIZED VIEW delays AS
SELECT carrier, count(*) AS flights, max(delay) AS longest FROM flights GROUP BY carrier;
