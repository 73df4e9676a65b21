#!/usr/bin/env bash
# Guardian's Logback appender for Kinesis does not wait for its calls when Logback stops: their lines are lost.
#
# com.gu:kinesis-logback-appender 2.0.3 with its documentation's settings, seen on 2026-11-29: 1,000 lines are logged, and
# Logback is stopped, as at the end of a program. The service takes each call, and answers after 0.2 s. Hundreds of lines are
# never sent, though <shutdownTimeout> allows 30 s: the client is closed at once. Only Logback's status list has an error
# for them.
# Hurt: the last lines of each process: the error that ended it, or all of a short job.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > pom.xml <<'XML'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId>
  <artifactId>appender</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>com.gu</groupId><artifactId>kinesis-logback-appender</artifactId><version>2.0.3</version></dependency>
    <dependency><groupId>ch.qos.logback</groupId><artifactId>logback-classic</artifactId><version>1.3.14</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory=libraries
cat > Main.java <<'JAVA'
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.joran.JoranConfigurator;
import ch.qos.logback.core.status.Status;
import java.io.ByteArrayInputStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

public class Main {
    public static void main(String[] arguments) throws Exception {
        String settings = "<configuration><appender name='KINESIS' class='com.gu.logback.appender.kinesis.KinesisAppender'>"
                + "<bufferSize>1000</bufferSize><threadCount>20</threadCount><endpoint>" + arguments[0] + "</endpoint>"
                + "<region>us-east-1</region><maxRetries>3</maxRetries><shutdownTimeout>30</shutdownTimeout>"
                + "<streamName>s</streamName><encoding>UTF-8</encoding>"
                + "<layout class='ch.qos.logback.classic.PatternLayout'><pattern>%m</pattern></layout></appender>"
                + "<root level='INFO'><appender-ref ref='KINESIS'/></root></configuration>";
        LoggerContext context = (LoggerContext) LoggerFactory.getILoggerFactory();
        context.reset();
        JoranConfigurator configurator = new JoranConfigurator();
        configurator.setContext(context);
        configurator.doConfigure(new ByteArrayInputStream(settings.getBytes()));
        context.getLogger("software.amazon").setLevel(ch.qos.logback.classic.Level.OFF);
        context.getLogger("io.netty").setLevel(ch.qos.logback.classic.Level.OFF);
        Logger logger = LoggerFactory.getLogger("job");
        for (int number = 0; number < 1_000; number++) {
            logger.info("line " + number);
        }
        context.stop();
        context.getStatusManager().getCopyOfStatusList().stream()
                .filter(status -> status.getLevel() == Status.ERROR)
                .reduce((former, latter) -> latter).ifPresent(System.out::println);
    }
}
JAVA
AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b node - <<'JS'
const assert = require("assert");
const { spawn } = require("child_process");
const http2 = require("http2");

// In place of the service: it takes each call.
const lines = new Set();
const server = http2.createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    const action = request.headers["x-amz-target"].split(".").pop();
    if (action === "PutRecord") {
      lines.add(Buffer.from(JSON.parse(body).Data, "base64").toString());
      const answer = JSON.stringify({ SequenceNumber: "1", ShardId: "shardId-000000000000" });
      setTimeout(() => response.end(answer), 200);
    } else {
      response.end(JSON.stringify({ StreamDescription: { StreamStatus: "ACTIVE", Shards: [] } }));
    }
  });
});
server.listen(0, "127.0.0.1", () => {
  const endpoint = `http://127.0.0.1:${server.address().port}`;
  const java = spawn("java", ["-Daws.cborEnabled=false", "-cp", "libraries/*", "Main.java", endpoint], { stdio: "inherit" });
  java.on("exit", (code) => {
    console.log("lines that were logged: 1000, that were sent:", lines.size);
    assert.strictEqual(code, 0);
    assert.ok(lines.size > 0 && lines.size < 1000);
    process.exit();
  });
});
JS
