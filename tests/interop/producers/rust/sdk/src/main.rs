// The AWS SDK for Rust: PutRecords by 100; entries that were refused are put again.
use aws_config::BehaviorVersion;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use std::io::BufRead;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plain = aws_smithy_http_client::Builder::new().build_http();
    let from = aws_config::defaults(BehaviorVersion::latest()).http_client(plain).endpoint_url(std::env::var("ENDPOINT")?);
    let config = from.load().await;
    let kinesis = aws_sdk_kinesis::Client::new(&config);
    let stream = std::env::var("STREAM")?;
    for entries in given()?.chunks(100) {
        let mut rest = entries.to_vec();
        while !rest.is_empty() {
            let put = kinesis.put_records().stream_name(&stream).set_records(Some(rest.clone()));
            let answer = put.send().await?;
            let refused = answer.records().iter().map(|one| one.error_code().is_some());
            rest = rest.iter().zip(refused).filter(|(_, is_refused)| *is_refused).map(|(one, _)| one.clone()).collect();
        }
    }
    Ok(())
}

fn given() -> Result<Vec<PutRecordsRequestEntry>, Box<dyn std::error::Error>> {
    let mut entries = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let one: serde_json::Value = serde_json::from_str(&line?)?;
        let (key, data) = (one["key"].as_str().unwrap(), one["data"].as_str().unwrap());
        entries.push(PutRecordsRequestEntry::builder().partition_key(key).data(Blob::new(data)).build()?);
    }
    Ok(entries)
}
